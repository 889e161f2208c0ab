"""Copy of a plugin in the save folder of a training."""

from __future__ import annotations

import pytest

from alibi_fairseq.errors import UserInputError
from alibi_fairseq.plugin.kept_plugin import keep_plugin

FILE = "my_plugin/__init__.py"


@pytest.fixture
def source(tmp_path):
    """Return a source file of a plugin."""
    source = tmp_path / FILE
    source.parent.mkdir()
    source.write_text("first version")
    return source


@pytest.fixture
def save_dir(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    return folder


def test_new_training_replaces_the_copy_of_an_earlier_one(source, save_dir):
    keep_plugin({FILE: source, "my_plugin/old.py": source}, save_dir, resumes=False)
    source.write_text("second version")
    keep_plugin({FILE: source}, save_dir, resumes=False)
    assert (save_dir / "plugin" / FILE).read_text() == "second version"
    assert [path.name for path in (save_dir / "plugin" / "my_plugin").iterdir()] == ["__init__.py"]
    assert [path.name for path in save_dir.iterdir()] == ["plugin"]


@pytest.mark.parametrize("resumes", [False, True])
def test_training_that_uses_the_copy_leaves_it(source, save_dir, resumes):
    keep_plugin({FILE: source}, save_dir, resumes=False)
    copy = save_dir / "plugin" / FILE
    not_imported = copy.with_name("plots.py")
    not_imported.write_text("mine")
    keep_plugin({FILE: copy}, save_dir, resumes)
    assert copy.read_text() == "first version"
    assert not_imported.read_text() == "mine"


def test_other_folder_of_that_name_stays(source, save_dir):
    own = save_dir / "plugin" / "notes.txt"
    own.parent.mkdir()
    own.write_text("notes")
    keep_plugin({}, save_dir, resumes=False)
    keep_plugin({FILE: source}, save_dir, resumes=True)
    with pytest.raises(UserInputError, match="was not written by a training. Rename it"):
        keep_plugin({FILE: source}, save_dir, resumes=False)
    assert [path.name for path in save_dir.rglob("*")] == ["plugin", "notes.txt"]
