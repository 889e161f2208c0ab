"""Updates that are left out because their gradients overflow in fp16."""

from __future__ import annotations

import pytest
from fairseq_runs import run_train, same_training_state, write_corpus

#: The loss scale doubles after every third update, and then soon overflows again.
FLAGS = (
    *("--task", "language_modeling", "--tokens-per-sample", "16", "--max-tokens", "64"),
    *("--memory-efficient-fp16", "--fp16-scale-window", "3"),
)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("data"), train=2000, valid=64)


def counts(state: dict) -> tuple[int, int]:
    """Return the updates of a checkpoint in its first epoch, and its batches."""
    batches = state["extra_state"]["train_iterator"]["iterations_in_epoch"]
    return state["optimizer_history"][-1]["num_updates"], batches


@pytest.mark.ci
def test_resumed_training_changes_the_loss_scale_alike(data, tmp_path):
    flags = (*FLAGS, "--fp16-init-scale", "4194304", "--disable-validation")
    whole = run_train(data, tmp_path / "whole", *flags, "--max-update", "12")
    updates, batches = counts(whole)
    assert updates == 12 < batches
    run_train(data, tmp_path / "resumed", *flags, "--max-update", "5")
    resumed = run_train(data, tmp_path / "resumed", *flags, "--max-update", "12")
    assert same_training_state(resumed, whole)
