"""Updates that are left out because their gradients overflow in fp16."""

from __future__ import annotations

import os
import signal

import pytest
from fairseq.optim.dynamic_loss_scaler import DynamicLossScaler
from fairseq_cli import train
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


@pytest.mark.ci
def test_each_update_is_validated_once(data, tmp_path, monkeypatch):
    """Also if an update is left out after one, during which a signal stops the training."""
    validated = []
    validate = train.validate

    def noting(cfg, trainer, *arguments):
        validated.append(trainer.get_num_updates())
        return validate(cfg, trainer, *arguments)

    monkeypatch.setattr(train, "validate", noting)
    flags = (*FLAGS, "--fp16-init-scale", "16384", "--validate-interval-updates", "1")
    flags = (*flags, "--patience", "1", "--max-update", "10")
    whole = run_train(data, tmp_path / "whole", *flags)
    updates, batches = counts(whole)
    assert updates == 10 < batches
    assert validated == list(range(1, 11))
    assert whole["cfg"]["dataset"]["validate_interval_updates"] == 1

    validated.clear()
    check = DynamicLossScaler.check_overflow

    def signaling(scaler, norm):
        try:
            check(scaler, norm)
        except OverflowError:
            if validated:
                os.kill(os.getpid(), signal.SIGTERM)
            raise

    with monkeypatch.context() as patch:
        patch.setattr(DynamicLossScaler, "check_overflow", signaling)
        stopped = run_train(data, tmp_path / "stopped", *flags)
    updates, batches = counts(stopped)
    assert 0 < updates < batches
    assert validated == list(range(1, updates + 1))
    assert stopped["cfg"]["dataset"]["validate_interval_updates"] == 1
    assert same_training_state(run_train(data, tmp_path / "stopped", *flags), whole)
    assert validated == list(range(1, 11))
