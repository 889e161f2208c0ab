"""Checkpoints that a training keeps after given numbers of updates."""

from __future__ import annotations

import pytest
import torch
from commands import SHORT

from alibi_fairseq.cli import main


def weights(path) -> dict[str, torch.Tensor]:
    """Return the weights in a checkpoint."""
    return torch.load(path, weights_only=False)["model"]


def equal(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.ci
def test_kept_checkpoint_is_that_of_a_shorter_training(data_bin, tmp_path, monkeypatch):
    monkeypatch.setenv("ALIBI_KEEP_AT", "")  # restored after the test

    def train(name: str, *options: str):
        folder = tmp_path / name
        words = ["train", str(data_bin), *SHORT, "--lr-scheduler", "fixed", *options]
        assert main([*words, "--save-dir", str(folder)]) == 0
        return folder

    whole = train("whole", "--max-update", "6")
    shorter = train("shorter", "--max-update", "3")
    kept = train("kept", "--max-update", "6", "--keep-at", "3,5")
    assert {path.name for path in kept.glob("checkpoint_*[0-9].pt")} >= {
        "checkpoint_3.pt",
        "checkpoint_5.pt",
    }
    last = weights(kept / "checkpoint_last.pt")
    assert equal(last, weights(whole / "checkpoint_last.pt"))
    after_three = weights(kept / "checkpoint_3.pt")
    assert equal(after_three, weights(shorter / "checkpoint_last.pt"))
    assert not equal(after_three, last)
    # The interval of saves in the checkpoint is that of the options.
    saved = torch.load(kept / "checkpoint_3.pt", weights_only=False)["cfg"]["checkpoint"]
    assert saved["save_interval_updates"] == 0


@pytest.mark.ci
def test_training_killed_before_the_copy_keeps_it_when_resumed(data_bin, tmp_path, monkeypatch):
    monkeypatch.setenv("ALIBI_KEEP_AT", "")
    words = ["train", str(data_bin), *SHORT, "--lr-scheduler", "fixed", "--save-dir", str(tmp_path)]
    assert main([*words, "--max-update", "3"]) == 0
    assert main([*words, "--max-update", "6", "--keep-at", "3"]) == 0
    state = torch.load(tmp_path / "checkpoint_3.pt", weights_only=False)
    assert state["optimizer_history"][-1]["num_updates"] == 3
