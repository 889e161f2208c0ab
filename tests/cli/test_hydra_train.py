"""``alibi-fairseq hydra-train`` with a YAML file whose paths are relative."""

from __future__ import annotations

import pytest
from commands import PACKAGE, ROOT, YAML, as_process

pytestmark = pytest.mark.ci


@pytest.fixture
def folder(tmp_path, data_bin):
    """Return a folder with a YAML file and data."""
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "small.yaml").write_text(YAML)
    (tmp_path / "data-bin").symlink_to(data_bin)
    return tmp_path


def train(folder, *overrides):
    command = ["-m", "alibi_fairseq", "hydra-train", "--config-dir", "configs"]
    return as_process(*command, "--config-name", "small", *overrides, cwd=folder, PYTHONPATH=ROOT)


def test_paths_are_relative_to_start_folder(folder):
    done = train(folder)
    assert done.returncode == 0, done.stderr[-2000:]
    assert (folder / "out" / "checkpoint_last.pt").is_file()
    assert list((folder / "logs" / "train").iterdir())


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("task.data=nowhere", "nowhere"),
        ("model.no_such_option=1", "no_such_option"),
        ("+model.position_method=???", "Pass model.position_method=VALUE."),
    ],
)
def test_bad_options_are_rejected(folder, override, named):
    done = train(folder, override)
    assert done.returncode == 2, done.stderr[-2000:]
    last_line = done.stderr.strip().splitlines()[-1]
    assert "error: " in last_line
    assert named in last_line
    assert not (folder / "out").exists()


def test_plain_fairseq_command_is_rejected(folder):
    paths = [f"task.data={folder / 'data-bin'}", f"checkpoint.save_dir={folder / 'out'}"]
    command = ["-m", "fairseq_cli.hydra_train", "--config-dir", "configs", "--config-name", "small"]
    done = as_process(*command, *paths, f"common.user_dir={PACKAGE}", cwd=folder)
    assert done.returncode == 2, done.stderr[-2000:]
    assert "Use alibi-fairseq hydra-train" in done.stderr.strip().splitlines()[-1]
    assert not (folder / "out").exists()
