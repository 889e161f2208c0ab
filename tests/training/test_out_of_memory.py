"""Batches that are too large for the memory of the GPU."""

from __future__ import annotations

import pytest
import torch
from fairseq.tasks.language_modeling import LanguageModelingTask
from fairseq_runs import run_train, training_config

from alibi_fairseq.errors import UserInputError
from alibi_fairseq.plugin.hooks import smaller_passes

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
    with pytest.raises(UserInputError, match="ran out of GPU memory. Divide --max-tokens by 2"):
        run_train(data_bin, tmp_path, *FLAGS, "--max-update", "4")
    assert batches == fitting + 1
    assert not list(tmp_path.glob("*.pt"))


@pytest.mark.parametrize(
    ("batch", "advice"),
    [
        ("--max-tokens 9216 --tokens-per-sample 512", "Divide --max-tokens by 2 and multiply"),
        ("--max-tokens 9216 --tokens-per-sample 1024", "Divide --max-tokens by 3 and multiply"),
        ("--max-tokens 3000 --tokens-per-sample 1024", "Divide --max-tokens by 2 and multiply"),
        ("--max-tokens 3072 --tokens-per-sample 3072", "A pass is already a single sequence."),
        ("--batch-size 5 --tokens-per-sample 512", "Divide --batch-size by 5 and multiply"),
        (
            "--batch-size 6 --max-tokens 9216 --tokens-per-sample 1024",
            "Divide --max-tokens and --batch-size by 2 and multiply",
        ),
    ],
)
def test_advice_keeps_the_tokens_per_update(batch, advice):
    flags = ["--arch", "alibi_lm", *batch.split(), "--required-batch-size-multiple", "1"]
    assert smaller_passes(training_config(*flags)).startswith(advice)


def test_advice_heeds_the_multiple_of_sequences():
    """Of nine sequences that fit, a pass has eight by default."""
    flags = ["--arch", "alibi_lm", "--max-tokens", "9216", "--tokens-per-sample", "1024"]
    cfg = training_config(*flags)
    assert smaller_passes(cfg).startswith("Divide --max-tokens by 2 and multiply")
