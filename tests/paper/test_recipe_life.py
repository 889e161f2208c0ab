"""Each kind of recipe on the CPU: validation, saving, a stop by a signal, and resuming.

The model is tiny. Precision, criterion, optimizer, and schedule are those of the recipe.
"""

from __future__ import annotations

import os
import signal

import pytest
from fairseq.tasks import FairseqTask
from fairseq_runs import run_train, write_corpus

from alibi_fairseq.paper.recipe import RECIPES, flags
from alibi_fairseq.results.file import load_training

TINY = (
    *("--decoder-layers", "1", "--decoder-embed-dim", "32", "--decoder-ffn-embed-dim", "32"),
    *("--decoder-attention-heads", "4", "--tokens-per-sample", "64", "--max-tokens", "512"),
    *("--update-freq", "1", "--distributed-world-size", "1", "--memory-efficient-fp16"),
    *("--validate-interval-updates", "2", "--save-interval-updates", "2"),
)
#: Cutoffs that fit the dictionary.
ADAPTIVE = ("--adaptive-softmax-cutoff", "6,14", "--adaptive-input-cutoff", "6,14")


@pytest.mark.parametrize(
    ("path", "criterion", "optimizer"),
    [
        ("wikitext-103/alibi-512", "adaptive_loss", "nag"),
        ("bookcorpus/alibi-512", "cross_entropy", "nag"),
        ("cc100-roberta/alibi-512", "cross_entropy", "adam"),
    ],
)
@pytest.mark.ci
def test_recipe_survives_stop(path, criterion, optimizer, tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    data = write_corpus(tmp_path / "data", train=8000, valid=1000)
    recipe = [*flags(RECIPES[path].settings()), *TINY]
    if criterion == "adaptive_loss":
        recipe += ADAPTIVE
    train_step = FairseqTask.train_step

    def train_step_with_signal(task, sample, model, criterion, optimizer, update_num, **keywords):
        if update_num == 2:
            os.kill(os.getpid(), signal.SIGUSR1)
        return train_step(task, sample, model, criterion, optimizer, update_num, **keywords)

    with monkeypatch.context() as patch:
        patch.setattr(FairseqTask, "train_step", train_step_with_signal)
        stopped = run_train(data, tmp_path / "run", *recipe, "--max-update", "6")
    assert stopped["optimizer_history"][-1]["num_updates"] == 3
    resumed = run_train(data, tmp_path / "run", *recipe, "--max-update", "6")
    assert resumed["optimizer_history"][-1]["num_updates"] == 6
    assert all(weight.isfinite().all() for weight in resumed["model"].values())
    assert resumed["cfg"]["criterion"]["_name"] == criterion
    assert resumed["cfg"]["optimizer"]["_name"] == optimizer
    records = load_training(tmp_path / "run").results
    assert [record.updates for record in records] == [2, 4, 6]
    assert all(record.values.loss_bits is not None for record in records)
    assert {record.reading.precision for record in records} == {"fp16"}
