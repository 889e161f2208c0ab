"""Sweeps on trained checkpoints: resuming, and the contents of result records."""

from __future__ import annotations

import pytest
import torch
from conftest import without_times
from trained import TRAIN_LENGTH, Trained, text_of, train

from alibi_fairseq.data import probes
from alibi_fairseq.errors import UserInputError
from alibi_fairseq.evaluation import text_cases
from alibi_fairseq.evaluation.probe_cases import ProbeCases
from alibi_fairseq.evaluation.text_cases import TextCases
from alibi_fairseq.results.results_file import load_results_file


def test_record_describes_model_and_loss(sweep):
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


def test_loss_does_not_depend_on_batch_size(sweep):
    for stride in (2, None):
        (one,) = sweep(strides=[stride], memory_gb=1e-9, out=f"one{stride}")
        (many,) = sweep(strides=[stride])
        assert one["windows_per_batch"] == 1 and many["windows_per_batch"] > 8
        assert one["loss_bits"] == pytest.approx(many["loss_bits"], abs=1e-6)
    assert one["tokens_per_second_batch_1"] == one["tokens_per_second"]
    assert 0 < many["tokens_per_second_batch_1"] != many["tokens_per_second"]


def test_interrupted_sweep_resumes(sweep, tmp_path, monkeypatch):
    """Each record is written before the next is measured, and a resumed sweep changes no bit."""
    given = {"lengths": [8, 16], "strides": [None, 1]}
    whole, written = sweep(**given, out="whole"), []

    def stopping(*arguments, measure=TextCases.measure):
        if (tmp_path / "results.json").exists():
            written.append(load_results_file(tmp_path / "results.json")["cells"])
        if len(written) == 3:
            raise KeyboardInterrupt
        return measure(*arguments)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(TextCases, "measure", stopping)
        sweep(**given)
    assert [len(cells) for cells in written] == [1, 2, 3]
    cells = sweep(**given)
    assert cells[:3] == written[-1]  # with their times
    assert list(map(without_times, cells)) == list(map(without_times, whole))
    assert not list(tmp_path.glob(".*"))
    assert sweep(lengths=[16, 8]) == [cells[2], cells[0]]  # what is there already
    document = load_results_file(tmp_path / "results.json")
    assert document["cells"] == cells and len(document["provenance"]["parts"]) == 2


def test_lengths_past_the_end_are_measured_once(sweep, monkeypatch):
    scored = []

    def counting(*arguments, sum_losses=text_cases.sum_losses):
        scored.append(arguments)
        return sum_losses(*arguments)

    monkeypatch.setattr(text_cases, "sum_losses", counting)
    (whole,) = sweep(lengths=[5000])
    tokens = whole["tokens"]
    assert whole["longest_window"] == tokens < 5000
    cells = sweep(lengths=[64, tokens - 1, tokens, 5000, 9000], strides=[None, 16])
    by_length = {(cell["length"], cell["stride"]): cell for cell in cells}
    for stride in (None, 16):
        last, first = by_length[9000, stride or 9000], by_length[5000, stride or 5000]
        assert (last["longest_window"], last["loss_bits"]) == (tokens, first["loss_bits"])
        assert last["mean_context"] == first["mean_context"]
    assert by_length[64, 64]["longest_window"] == 64
    # S = 16 has windows of its own at every length up to 5,000; S = L at 64, at all tokens but one
    # and, measured first, at 5,000, which are those of all tokens.
    assert len(scored) == 4 + 3
    scored.clear()
    assert sweep(lengths=[7000])[0]["loss_bits"] == whole["loss_bits"] and not scored


def test_probe_sweep_resumes(sweep, tmp_path, monkeypatch):
    monkeypatch.setattr(probes, "TOKENS", 4096)
    data = tmp_path / "probe"
    probes.prepare(probes.PROBES["copy"], TRAIN_LENGTH, None, data)
    case = {"data": data, "lengths": [TRAIN_LENGTH]}
    checkpoint = train(data, tmp_path / "model", Trained.FLAGS["alibi"])
    cells = sweep(checkpoint, **case)
    assert [cell["depth"] for cell in cells] == list(probes.DEPTHS)
    monkeypatch.setattr(ProbeCases, "measure", pytest.fail)
    assert sweep(checkpoint, **case) == cells
    with pytest.raises(UserInputError, match="precision"):
        sweep(checkpoint, **case, precision="bf16")


def test_memory_passes_between_windows(sweep):
    def bits_and_context(length, memory):
        case = {"lengths": [length], "overrides": {"mem_len": memory}}
        (cell,) = sweep("transformer-xl", f"{length}-{memory}", **case)
        assert cell.get("memory_length", 0) == memory
        return cell["loss_bits"], cell["mean_context"]

    # With a memory of everything nothing is cut off: segments are a way to compute one long window.
    assert bits_and_context(16, 5000) == pytest.approx(bits_and_context(5000, 5000), abs=1e-5)
    (some, context), (none, short) = bits_and_context(16, 24), bits_and_context(16, 0)
    # Behind the first segments a token sees 24 remembered inputs and 1 to 16 of its own segment.
    assert some != none and 28 < context < 24 + 8.5 and short == pytest.approx(8.5, abs=0.1)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_loss_is_close(sweep, precision):
    (full,), (half,) = sweep(), sweep(precision=precision, out="half")
    assert half["precision"] == precision
    assert 0 < abs(half["loss_bits"] - full["loss_bits"]) < 0.02


def test_sweep_reads_checkpoints_of_earlier_versions(sweep, trained, tmp_path):
    state = torch.load(trained("rotary"), weights_only=False)
    history = state["optimizer_history"]
    history.insert(0, {**history[-1], "num_updates": 7})  # of an optimizer that was reset
    for option in ("rotary_scaling", "score_scaling"):  # which this one is too old to have
        del state["cfg"]["model"][option]
    torch.save(state, tmp_path / "old.pt")
    perplexities = []
    for overrides in ({}, {"rotary_scaling": "yarn:2"}, {"score_scaling": "logn"}):
        case = {"lengths": [64], "overrides": overrides, "out": f"new{len(perplexities)}"}
        (new,) = sweep("rotary", **case)
        (old,) = sweep(tmp_path / "old.pt", **case | {"out": f"old{len(perplexities)}"})
        perplexities.append(new["perplexity"])
        assert (old["perplexity"], old["updates"]) == (new["perplexity"], 12)
    assert len(set(perplexities)) == 3
