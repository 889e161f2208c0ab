"""Batches that are too large for the memory of the GPU."""

from __future__ import annotations

import pytest
import torch
from fairseq.tasks.language_modeling import LanguageModelingTask
from fairseq_runs import run_train

from alibi_fairseq.errors import UserInputError

FLAGS = ("--task", "language_modeling", "--tokens-per-sample", "16", "--max-tokens", "64")


@pytest.mark.parametrize("fitting", [0, 2])
def test_training_ends_at_the_first_batch_that_does_not_fit(
    data_bin, tmp_path, monkeypatch, fitting
):
    train_step = LanguageModelingTask.train_step
    batches = 0

    def limited_step(*arguments, **keywords):
        nonlocal batches
        batches += 1
        if batches <= fitting:
            return train_step(*arguments, **keywords)
        assert batches == fitting + 1, "the batch was left out"
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    monkeypatch.setattr(LanguageModelingTask, "train_step", limited_step)
    with pytest.raises(UserInputError, match="ran out of GPU memory. Halve --max-tokens and"):
        run_train(data_bin, tmp_path, *FLAGS, "--max-update", "4")
    assert batches == fitting + 1
    assert not list(tmp_path.glob("*.pt"))
