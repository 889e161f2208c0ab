"""A run and its folder."""

import json

import pytest
import torch

from alibi_fairseq.experiment.child_process import ChildProcess, CommandFailedError
from alibi_fairseq.experiment.run import Run
from alibi_fairseq.experiment.stopping import Stopped
from alibi_fairseq.plugin import loading


def make_run(folder, updates=10, **more) -> Run:
    required = {"data": "data-bin", "flags": (), "request": {}, "tokens": 16 * updates}
    return Run("alibi", folder, updates=updates, **required, **more)


def test_saved_updates_of_last_checkpoint(tmp_path):
    run = make_run(tmp_path)
    assert run.saved_updates() == 0
    torch.save({"optimizer_history": [{"num_updates": 7}]}, tmp_path / "checkpoint_last.pt")
    assert run.saved_updates() == 7


def test_checkpoint_is_read_once_per_version(tmp_path, monkeypatch):
    """One of 1.3B parameters has 16 GB, and a run has an update count for each point of a curve."""
    read = []
    read_checkpoint = loading.read_checkpoint

    def noting(path):
        read.append(path)
        return read_checkpoint(path)

    monkeypatch.setattr(loading, "read_checkpoint", noting)
    run = make_run(tmp_path, updates=40, keep_at=(10, 20, 30))
    run.request_file.write_text(json.dumps({}))
    for updates in (3, 5):
        torch.save({"optimizer_history": [{"num_updates": updates}]}, tmp_path / "new.pt")
        (tmp_path / "new.pt").replace(tmp_path / "checkpoint_last.pt")
        run.check_start()
        assert run.saved_updates() == updates
    assert len(read) == 2


def test_trial_that_diverges_while_stopping_starts_no_other_run(tmp_path, monkeypatch):
    def diverge(command, slot):
        raise CommandFailedError("FloatingPointError: gradients are Nan", 1, was_stopping=True)

    monkeypatch.setattr(ChildProcess, "run", diverge)
    trial = make_run(tmp_path, may_diverge=True)
    with pytest.raises(Stopped):
        trial.train()
    assert trial.diverged
