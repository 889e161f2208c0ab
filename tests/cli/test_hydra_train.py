"""``alibi-fairseq hydra-train`` with a YAML file whose paths are relative."""

from __future__ import annotations

import pytest
from commands import ROOT, YAML, as_process


@pytest.fixture
def here(tmp_path, data_bin):
    """A folder with a YAML file and the data beside it."""
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "small.yaml").write_text(YAML)
    (tmp_path / "data-bin").symlink_to(data_bin)
    return tmp_path


def train(here, *overrides):
    command = ["-m", "alibi_fairseq", "hydra-train", "--config-dir", "configs"]
    return as_process(*command, "--config-name", "small", *overrides, cwd=here, PYTHONPATH=ROOT)


@pytest.mark.slow  # as every run of it in tests/test_signals.py
def test_paths_are_meant_from_where_it_was_started(here):
    done = train(here)
    assert done.returncode == 0, done.stderr[-2000:]
    assert (here / "out" / "checkpoint_last.pt").is_file()
    assert list((here / "logs" / "train").iterdir())


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("task.data=nowhere", "nowhere"),
        pytest.param("model.no_such_option=1", "no_such_option", marks=pytest.mark.slow),
    ],
)
def test_bad_input(here, override, named):
    done = train(here, override)
    assert done.returncode == 2, done.stderr[-2000:]
    assert "error: " in (last := done.stderr.strip().splitlines()[-1]) and named in last
    assert not (here / "out").exists()
