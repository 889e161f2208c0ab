"""Version of a plugin: the hash of the source files of its package."""

from __future__ import annotations

import sys

import pytest

from alibi_fairseq.positions import METHODS
from alibi_fairseq.positions.plugin_sources import _sha256_of, plugin_sha256

METHOD = """
from alibi_fairseq.positions import PositionMethod, register_position_method
from . import bias

class Mine(PositionMethod):
    pass

register_position_method("mine", Mine)
"""


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """Import a plugin of two modules, with a third that is not imported; return its folder."""
    folder = tmp_path / "plugin_of_files"
    folder.mkdir()
    (folder / "__init__.py").write_text(METHOD)
    (folder / "bias.py").write_text("SLOPE = 1\n")
    (folder / "plots.py").write_text("COLOR = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    monkeypatch.setitem(METHODS, "mine", None)  # removed again after the test
    del METHODS["mine"]
    __import__("plugin_of_files")
    return folder


def version_in_new_process():
    _sha256_of.cache_clear()
    return plugin_sha256(["mine"])


@pytest.mark.parametrize("file", ["__init__.py", "bias.py"])
def test_edit_of_an_imported_module_changes_the_version(plugin, file):
    before = version_in_new_process()
    assert len(before) == 64
    text = (plugin / file).read_text()
    (plugin / file).write_text(text + "# edited\n")
    assert plugin_sha256(["mine"]) == before  # this process has imported the earlier version
    assert version_in_new_process() != before
    (plugin / file).write_text(text)
    assert version_in_new_process() == before


def test_other_files_do_not_change_the_version(plugin):
    before = version_in_new_process()
    (plugin / "plots.py").write_text("COLOR = 2\n")
    (plugin / "notes.txt").write_text("notes")
    assert version_in_new_process() == before


@pytest.mark.parametrize("names", [["mine"], ["alibi", "mine"], ["mine", "of_another_plugin"]])
def test_models_of_a_plugin_have_its_version(plugin, names):
    assert plugin_sha256(names) == version_in_new_process()


@pytest.mark.parametrize("names", [["alibi"], ["alibi", "none"], ["minerva"]])
def test_models_without_an_imported_plugin_have_no_version(plugin, names):
    assert plugin_sha256(names) is None
