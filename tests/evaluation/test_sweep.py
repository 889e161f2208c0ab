"""Sweeps on real checkpoints: resuming, and what a result says."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time

import pytest
import torch
from commands import ROOT
from conftest import without_times
from fairseq import checkpoint_utils
from torch.nn.functional import cross_entropy
from trained import TRAIN_LENGTH, Trained, text_of, train

from alibi_fairseq.data import probes
from alibi_fairseq.errors import BadInput
from alibi_fairseq.evaluation.probe import ProbeCases
from alibi_fairseq.results.schema import load_document


def test_what_a_cell_says(sweep):
    cell, _ = sweep(lengths=[16, 64], strides=[4])
    lines = text_of("valid")
    text = "".join(line + "\n" for line in lines)
    words = sum(len(line.split()) for line in lines) + len(lines)
    assert cell["model"] == "alibi_lm" and cell["position_method"] == "alibi"
    assert (cell["train_length"], cell["length"], cell["stride"]) == (TRAIN_LENGTH, 16, 4)
    assert (cell["updates"], cell["seed"], cell["precision"]) == (12, 3, "fp32")
    assert cell["words"] == words and cell["bytes"] == len(text.encode())
    bits = cell["loss_bits"] * cell["tokens"]
    assert cell["perplexity"] == pytest.approx(2 ** cell["loss_bits"])
    assert cell["word_perplexity"] == pytest.approx(2 ** (bits / words))
    assert cell["bits_per_byte"] == pytest.approx(bits / len(text.encode()))
    assert cell["min_context"] == 1 and 13 <= cell["mean_context"] <= 16
    assert cell["tokens_per_second"] > 0 and cell["peak_memory_mb"] > 50
    assert "tokens_per_second_batch_1" not in cell  # of non-overlapping windows alone


def test_batches_do_not_change_the_loss(sweep):
    for stride in (2, None):
        (one,) = sweep(strides=[stride], memory_budget=1, out=f"one{stride}")
        (many,) = sweep(strides=[stride])
        assert one["windows_per_batch"] == 1 and many["windows_per_batch"] > 8
        assert one["loss_bits"] == pytest.approx(many["loss_bits"], abs=1e-6)
    assert one["tokens_per_second_batch_1"] == one["tokens_per_second"]
    assert 0 < many["tokens_per_second_batch_1"] != many["tokens_per_second"]


def test_the_same_sweep_gives_the_same_bits(sweep):
    one, two = (sweep(lengths=[16, 64], strides=[4], out=name) for name in "ab")
    assert list(map(without_times, one)) == list(map(without_times, two))


def test_finished_cells_are_kept(sweep, tmp_path):
    (first,) = sweep()
    cells = sweep(lengths=[16, 32, 64])
    assert cells[0] == first  # with its time
    assert sweep(lengths=[64, 16]) == [cells[2], cells[0]]
    document = load_document(tmp_path / "results.json")
    assert [cell["length"] for cell in document["cells"]] == [16, 32, 64]
    assert len(document["provenance"]["parts"]) == 2


def test_a_probe_is_resumed_as_well(sweep, tmp_path, monkeypatch):
    monkeypatch.setattr(probes, "TOKENS", 4096)
    data = tmp_path / "probe"
    probes.prepare(probes.PROBES["copy"], TRAIN_LENGTH, None, data)
    case = {"data": data, "lengths": [TRAIN_LENGTH]}
    checkpoint = train(data, tmp_path / "model", Trained.FLAGS["alibi"])
    cells = sweep(checkpoint, **case)
    assert [cell["depth"] for cell in cells] == list(probes.DEPTHS)
    monkeypatch.setattr(ProbeCases, "measure", pytest.fail)
    assert sweep(checkpoint, **case) == cells
    with pytest.raises(BadInput, match="precision"):
        sweep(checkpoint, **case, precision="bf16")


@pytest.mark.parametrize("length, stride", [(128, 8), (100, 30)])
def test_slopes_that_depend_on_the_window(sweep, trained, length, stride):
    """Windows at the start stay apart, because each divides the slopes by a length of its own."""
    dynamic = {"alibi_scale": "dynamic"}
    (cell,) = sweep(lengths=[length], strides=[stride], subsets=["test"], overrides=dynamic)
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task(
        [str(trained("alibi"))], arg_overrides={**dynamic, "data": str(trained.data)}
    )
    task.load_dataset("test")
    tokens = torch.cat([line["target"] for line in task.dataset("test")])
    inputs = torch.cat([torch.tensor([task.dictionary.eos()]), tokens[:-1]])
    nats = 0.0
    for first in range(0, len(tokens), stride):
        begin, end = max(0, first - length + stride), min(first + stride, len(tokens))
        with torch.no_grad():
            scores, _ = model.eval()(inputs[None, begin:end])
        wanted = tokens[first:end]
        nats += cross_entropy(scores[0, first - begin :], wanted, reduction="sum").item()
    assert cell["perplexity"] == pytest.approx(math.exp(nats / len(tokens)), rel=1e-6)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_is_near(sweep, precision):
    (full,), (half,) = sweep(), sweep(precision=precision, out="half")
    assert half["precision"] == precision
    assert 0 < abs(half["loss_bits"] - full["loss_bits"]) < 0.02


PROGRAM = """
import sys, time
from pathlib import Path
from alibi_fairseq.evaluation import sweep
data, checkpoint, out = map(Path, sys.argv[1:])
measure = sweep.TextCases.measure
sweep.TextCases.measure = lambda *given: time.sleep(0.5) or measure(*given)
sweep.run_sweep(sweep.Sweep(data, [checkpoint], ["valid"], [8, 16, 24, 32], [None, 1], out))
"""


def test_killed_and_started_again(trained, sweep, tmp_path):
    out = tmp_path / "results.json"
    command = [sys.executable, "-c", PROGRAM, str(trained.data), str(trained("alibi")), str(out)]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not (out.exists() and len(load_document(out)["cells"]) >= 2):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    before = load_document(out)["cells"]
    assert 2 <= len(before) < 8
    assert len(sweep(lengths=[8, 16, 24, 32], strides=[None, 1])) == 8
    assert load_document(out)["cells"][: len(before)] == before  # with their times
    assert not list(tmp_path.glob(".*"))


def changed(path, out, change):
    """A checkpoint, changed."""
    state = torch.load(path, weights_only=False)
    change(state)
    torch.save(state, out)
    return out


def test_updates_are_those_of_the_last_optimizer(sweep, trained, tmp_path):
    """A checkpoint whose optimizer was reset has several entries in its history."""

    def reset(state):
        history = state["optimizer_history"]
        history.insert(0, {**history[-1], "num_updates": 7})

    (cell,) = sweep(changed(trained("alibi"), tmp_path / "reset.pt", reset))
    assert cell["updates"] == 12


@pytest.mark.parametrize("overrides", [{"rotary_scaling": "yarn:2"}, {"score_scaling": "logn"}])
def test_options_that_a_checkpoint_is_too_old_to_have(sweep, trained, tmp_path, overrides):
    def drop(state):
        for option in ("rotary_scaling", "score_scaling"):
            del state["cfg"]["model"][option]

    def perplexity(path, out, **changes):
        (cell,) = sweep(path, out, lengths=[64], **changes)
        return cell["perplexity"]

    new, old = trained("rotary"), changed(trained("rotary"), tmp_path / "old.pt", drop)
    changed_value = perplexity(new, "a", overrides=overrides)
    assert perplexity(old, "b", overrides=overrides) == changed_value
    assert perplexity(old, "c") == perplexity(new, "d") != changed_value
