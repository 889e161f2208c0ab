"""Sweeps on real checkpoints: resuming, shards, and what a result says."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time

import pytest
import torch
from commands import ROOT, in_process
from fairseq import checkpoint_utils
from torch.nn.functional import cross_entropy
from trained import TRAIN_LENGTH, text_of

from alibi_fairseq.errors import BadInput
from alibi_fairseq.evaluation.merge import merge_shards
from alibi_fairseq.evaluation.sweep import Sweep, run_sweep
from alibi_fairseq.results.schema import load_document


@pytest.fixture
def sweep(trained, tmp_path):
    def make(**changes) -> Sweep:
        settings = {
            "checkpoints": [trained("alibi")],
            "subsets": ["valid"],
            "lengths": [16, 64],
            "strides": [None],
            "out": tmp_path / "results.json",
        }
        return Sweep(trained.data, **{**settings, **changes})

    return make


def measured(cell: dict) -> dict:
    """A cell without what differs from run to run."""
    noise = ("seconds", "tokens_per_second", "tokens_per_second_batch_1", "peak_memory_mb")
    return {key: value for key, value in cell.items() if key not in noise}


def test_what_a_cell_says(sweep, trained):
    cell, _ = run_sweep(sweep(lengths=[16, 64], strides=[4]))
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


def test_batches_do_not_change_the_loss(sweep, tmp_path):
    (one,) = run_sweep(sweep(lengths=[16], strides=[2], memory_budget=1, out=tmp_path / "one.json"))
    (many,) = run_sweep(sweep(lengths=[16], strides=[2]))
    assert one["windows_per_batch"] == 1 and many["windows_per_batch"] > 8
    assert one["loss_bits"] == pytest.approx(many["loss_bits"], abs=1e-6)


def test_the_same_sweep_gives_the_same_bits(sweep, tmp_path):
    """Determinism: the same checkpoint on the same machine."""
    one, two = (run_sweep(sweep(strides=[4], out=tmp_path / f"{name}.json")) for name in "ab")
    assert [measured(cell) for cell in one] == [measured(cell) for cell in two]


def test_finished_cells_are_kept(sweep):
    (first,) = run_sweep(sweep(lengths=[16]))
    new = []
    cells = run_sweep(sweep(lengths=[16, 32, 64]), on_cell=new.append)
    assert cells[0] == first
    assert [cell["length"] for cell in new] == [32, 64]
    assert run_sweep(sweep(lengths=[64, 16])) == [cells[2], cells[0]]
    document = load_document(sweep().out)
    assert [cell["length"] for cell in document["cells"]] == [16, 32, 64]
    assert len(document["provenance"]["parts"]) == 2


def test_speed_is_measured_at_batch_size_1_as_well(sweep, tmp_path):
    cell, _ = run_sweep(sweep())
    assert cell["windows_per_batch"] > 1
    assert 0 < cell["tokens_per_second_batch_1"] != cell["tokens_per_second"]
    (single,) = run_sweep(sweep(lengths=[16], memory_budget=1, out=tmp_path / "single.json"))
    assert single["windows_per_batch"] == 1
    assert single["tokens_per_second_batch_1"] == single["tokens_per_second"]
    (sliding,) = run_sweep(sweep(lengths=[16], strides=[4], out=tmp_path / "sliding.json"))
    assert "tokens_per_second_batch_1" not in sliding


@pytest.mark.parametrize("kind", ["evaluation", "position_loss"])
@pytest.mark.parametrize("stride", [None, 16, 1])
def test_three_shards_are_the_whole_bit_for_bit(sweep, tmp_path, kind, stride):
    settings = {"lengths": [24, 64, 4096] if stride is None else [32], "strides": [stride]}
    settings["buckets"] = None if kind == "evaluation" else 6
    settings["memory_budget"] = 300_000  # small batches, so that every shard gets some
    whole = run_sweep(sweep(**settings))
    parts = []
    for index in (1, 2, 3):
        out = tmp_path / f"{index}.json"
        run_sweep(sweep(**settings, shard=(index, 3), out=out))
        if out.exists():  # a shard may have nothing to do
            parts.append(load_document(out))
    merged = merge_shards(parts)["cells"]
    # Merged cells come in the order of the first shard that has any token of them.
    key = lambda cell: (cell["length"], cell.get("position_from", 0))  # noqa: E731
    merged, whole = sorted(merged, key=key), sorted(whole, key=key)
    assert [measured(cell) for cell in merged] == [measured(cell) for cell in whole]
    assert len(parts) > 1


def test_merged_shards_say_what_one_process_would(sweep, tmp_path):
    parts = []
    for index, (seconds, memory) in enumerate([(1.25, 300.5), (2.3, 100.5)], 1):
        out = tmp_path / f"{index}.json"
        run_sweep(sweep(lengths=[16], memory_budget=200_000, shard=(index, 2), out=out))
        parts.append(load_document(out))
        parts[-1]["cells"][0] |= {"seconds": seconds, "peak_memory_mb": memory}
    (cell,) = merge_shards(parts)["cells"]
    assert (cell["seconds"], cell["peak_memory_mb"]) == (3.55, 300.5)
    assert cell["tokens_per_second"] == round(cell["tokens"] / 3.55, 1) != cell["tokens"] // 3.55
    assert not [key for key in cell if key.startswith(("shard", "split_"))]


def test_a_missing_shard_is_noticed(sweep, tmp_path):
    parts = []
    for index in (1, 3):
        out = tmp_path / f"{index}.json"
        run_sweep(sweep(lengths=[16], memory_budget=200_000, shard=(index, 3), out=out))
        parts.append(load_document(out))
    with pytest.raises(BadInput, match="give the results of all shards"):
        merge_shards(parts)
    whole = sweep(lengths=[16])
    run_sweep(whole)
    with pytest.raises(BadInput, match="merge only shards"):
        merge_shards([load_document(whole.out)])


def test_losses_by_position_add_up_to_the_loss(sweep, tmp_path):
    (cell,) = run_sweep(sweep(lengths=[64]))
    groups = run_sweep(sweep(lengths=[64], buckets=8, out=tmp_path / "positions.json"))
    assert groups[0]["position_from"] == 0 and groups[-1]["position_to"] == 64
    for before, after in zip(groups, groups[1:]):
        assert before["position_to"] == after["position_from"]
    assert sum(group["tokens"] for group in groups) == cell["tokens"]
    bits = sum(group["loss_bits"] * group["tokens"] for group in groups)
    assert bits == pytest.approx(cell["loss_bits"] * cell["tokens"], rel=1e-12)


def test_positions_of_a_sliding_window(sweep, trained, tmp_path):
    """Beyond the first pass only the last S positions of a window are scored."""
    groups = run_sweep(sweep(lengths=[16], strides=[4], buckets=16))
    by_start = {group["position_from"]: group["tokens"] for group in groups}
    assert by_start[0] == 1
    last = max(by_start)
    assert by_start[last] > 10 * by_start[0]


@pytest.mark.parametrize("length, stride", [(128, 8), (100, 30)])
def test_slopes_that_depend_on_the_window(sweep, trained, length, stride):
    """Windows at the start stay apart, because each divides the slopes by a length of its own."""
    settings = {"lengths": [length], "strides": [stride], "subsets": ["test"]}
    (cell,) = run_sweep(sweep(**settings, overrides={"alibi_scale": "dynamic"}))
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task(
        [str(trained("alibi"))],
        arg_overrides={"alibi_scale": "dynamic", "data": str(trained.data)},
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
def test_half_precision_is_near(sweep, tmp_path, precision):
    full, _ = run_sweep(sweep())
    half, _ = run_sweep(sweep(precision=precision, out=tmp_path / "half.json"))
    assert half["precision"] == precision
    assert 0 < abs(half["loss_bits"] - full["loss_bits"]) < 0.02


def test_scores_that_are_not_finite_name_the_window(sweep, trained, tmp_path):
    state = torch.load(trained("alibi"), weights_only=True)
    weights = state["model"]["decoder.layers.1.fc2.bias"]
    weights[0] = float("nan")
    broken = tmp_path / "broken.pt"
    torch.save(state, broken)
    with pytest.raises(BadInput, match="fc2.bias in .*broken.pt holds numbers that are not finite"):
        run_sweep(sweep(checkpoints=[broken]))
    weights[0] = 3e38  # finite, and infinite in a sum of two
    state["model"]["decoder.layers.1.fc2.weight"][0] = 3e38
    torch.save(state, broken)
    with pytest.raises(BadInput, match=r"token from 0 to 15 of 'valid' .*inputs 0 to 15"):
        run_sweep(sweep(checkpoints=[broken]))
    assert not sweep().out.exists()


PROGRAM = """
import sys, time
from pathlib import Path
from alibi_fairseq.evaluation.sweep import Sweep, run_sweep
data, checkpoint, out = map(Path, sys.argv[1:])
sweep = Sweep(data, [checkpoint], ["valid"], [8, 16, 24, 32], [None, 1], out)
run_sweep(sweep, on_cell=lambda cell: time.sleep(0.5))
"""


def test_killed_and_started_again(trained, tmp_path):
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
    sweep = Sweep(trained.data, [trained("alibi")], ["valid"], [8, 16, 24, 32], [None, 1], out)
    new: list[dict] = []
    cells = run_sweep(sweep, on_cell=new.append)
    assert len(cells) == 8 and len(new) == 8 - len(before)
    assert load_document(out)["cells"][: len(before)] == before
    assert not list(tmp_path.glob(".*"))


def test_results_of_another_sweep(sweep, tmp_path):
    run_sweep(sweep(lengths=[16]))
    kept = sweep().out.read_text()
    others = [
        ({"precision": "bf16"}, "precision is fp32 there and bf16 here"),
        ({"shard": (1, 2)}, "shard is None there and 1/2 here"),
        ({"overrides": {"attention_backend": "eager"}}, "model_overrides is None there"),
        ({"subsets": ["test"]}, "data_sha256"),
        ({"buckets": 4}, "kind is evaluation there and position_loss here"),
    ]
    for changes, words in others:
        with pytest.raises(BadInput, match=words):
            run_sweep(sweep(**changes))
    assert sweep().out.read_text() == kept
    losses = {"lengths": [16], "out": tmp_path / "losses.json"}
    run_sweep(sweep(**losses, buckets=4))
    with pytest.raises(BadInput, match="buckets is 4 there and 8 here"):
        run_sweep(sweep(**losses, buckets=8))


def test_another_checkpoint_of_the_same_name(sweep, trained, tmp_path):
    path = tmp_path / "model.pt"
    path.write_bytes(trained("alibi").read_bytes())
    run_sweep(sweep(checkpoints=[path], lengths=[16]))
    path.write_bytes(trained("sinusoidal").read_bytes())
    with pytest.raises(BadInput, match="another checkpoint with the name"):
        run_sweep(sweep(checkpoints=[path], lengths=[16]))


def test_a_file_of_another_schema(sweep):
    sweep().out.write_text(json.dumps({"results": [1, 2]}))
    with pytest.raises(BadInput, match="schema"):
        run_sweep(sweep())


@pytest.mark.parametrize(
    "changes",
    [
        {"lengths": [16, 0]},
        {"lengths": [64, 16], "strides": [32]},
        {"subsets": ["dev"]},
        {"overrides": {"no_such_option": 1}},
        {"overrides": {"model": 5}},
        {"overrides": {"task": {"tokens_per_sample": 8}}},
        {"overrides": {"decoder_layers_to_keep": "x"}},
    ],
    ids=str,
)
def test_bad_requests_write_nothing(sweep, tmp_path, changes):
    with pytest.raises(BadInput):
        run_sweep(sweep(**changes))
    assert not list(tmp_path.iterdir())


def test_an_empty_split(sweep, trained, tmp_path):
    (tmp_path / "nothing.txt").write_text("")
    data = tmp_path / "data-bin"
    arguments = ["--only-source", "--srcdict", str(trained.data / "dict.txt")]
    arguments += [f"--validpref={tmp_path}/nothing.txt", f"--destdir={data}", "--workers", 1]
    in_process("preprocess", *arguments)
    with pytest.raises(BadInput, match="split 'valid' .* is empty"):
        run_sweep(Sweep(data, [trained("alibi")], ["valid"], [16], [None], sweep().out))
    assert not sweep().out.exists()


def test_not_a_checkpoint(sweep, tmp_path):
    path = tmp_path / "notes.pt"
    path.write_text("not a checkpoint")
    with pytest.raises(BadInput, match="cannot be read as a checkpoint"):
        run_sweep(sweep(checkpoints=[path]))


def test_windows_longer_than_the_model_takes(sweep, trained):
    with pytest.raises(BadInput, match="at most 32 tokens, not 64"):
        run_sweep(sweep(checkpoints=[trained("stock")], lengths=[64]))


def test_updates_are_those_of_the_last_optimizer(sweep, trained, tmp_path):
    """A checkpoint whose optimizer was reset has several entries in its history."""
    state = torch.load(trained("alibi"), weights_only=False)
    first = {**state["optimizer_history"][-1], "num_updates": 7}
    state["optimizer_history"] = [first, *state["optimizer_history"]]
    path = tmp_path / "reset.pt"
    torch.save(state, path)
    (cell,) = run_sweep(sweep(checkpoints=[path], lengths=[16]))
    assert cell["updates"] == 12


@pytest.mark.parametrize("overrides", [{"rotary_scaling": "yarn:2"}, {"score_scaling": "logn"}])
def test_options_that_a_checkpoint_is_too_old_to_have(sweep, trained, tmp_path, overrides):
    state = torch.load(trained("rotary"), weights_only=False)
    for option in ("rotary_scaling", "score_scaling"):
        del state["cfg"]["model"][option]
    old = tmp_path / "old.pt"
    torch.save(state, old)

    def perplexity(path, **changes):
        out = tmp_path / f"{path.stem}{len(changes)}.json"
        (cell,) = run_sweep(sweep(checkpoints=[path], lengths=[64], out=out, **changes))
        return cell["perplexity"]

    changed = perplexity(trained("rotary"), overrides=overrides)
    assert perplexity(old, overrides=overrides) == changed
    assert perplexity(old) == perplexity(trained("rotary")) != changed
