"""Sweeps on trained checkpoints: resuming, and the contents of result records."""

from __future__ import annotations

import argparse
import shutil
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from conftest import without_times
from trained import TRAIN_LENGTH, Trained, text_of, train

from alibi_fairseq.data import probes
from alibi_fairseq.errors import UserInputError
from alibi_fairseq.evaluation import evaluator, text_evaluator
from alibi_fairseq.evaluation.checkpoint import LoadedModel, load_checkpoint
from alibi_fairseq.evaluation.probe_evaluator import ProbeEvaluator
from alibi_fairseq.evaluation.split import Split
from alibi_fairseq.evaluation.text_evaluator import TextEvaluator
from alibi_fairseq.results.file import load, save


def test_record_describes_model(sweep):
    record, _ = sweep(lengths=[16, 64], strides=[4])
    assert record.series.facts.architecture == "alibi_lm"
    assert record.series.method.notation == "alibi"
    assert record.series.train_length == TRAIN_LENGTH
    assert record.updates == 12
    assert record.seed == 3
    assert record.reading.precision == "fp32"


@pytest.mark.parametrize(
    ("model", "overrides"),
    [
        ("alibi", {"train_length": 64}),
        ("stock", {"tokens_per_sample": 64, "max_target_positions": 64}),
    ],
)
def test_overrides_do_not_change_recorded_training_length(sweep, model, overrides):
    (record,) = sweep(model, lengths=[64], overrides=overrides)
    assert record.series.train_length == TRAIN_LENGTH


@pytest.mark.parametrize(
    ("option", "number"), [("alibi_scale", 4), ("alibi_clamp", 92), ("alibi_cap", 50.5)]
)
def test_number_overrides_option_that_is_text(sweep, trained, option, number):
    model = load_checkpoint(trained("alibi"), trained.data, overrides={option: number})
    assert getattr(model.decoder.embed_positions.options, option) == number
    by_number = sweep(overrides={option: number})
    assert sweep(overrides={option: str(number)}) == by_number


@pytest.fixture
def checkpoint_with_args(trained, tmp_path):
    """Write the options of a checkpoint as fairseq did before version 1.0."""
    state = torch.load(trained("stock"), weights_only=False)
    cfg = state.pop("cfg")
    args = {**cfg["common"], **cfg["task"], **cfg["model"]}
    args |= {"arch": "transformer_lm", "task": "language_modeling", "criterion": "cross_entropy"}
    torch.save({**state, "args": argparse.Namespace(**args)}, tmp_path / "old.pt")
    return tmp_path / "old.pt"


@pytest.mark.parametrize(
    ("length", "overrides"),
    [(16, {"no_scale_embedding": True}), (40, {"max_target_positions": 40})],
)
def test_overrides_change_checkpoints_with_args(sweep, checkpoint_with_args, length, overrides):
    case = {"lengths": [length], "overrides": overrides}
    (new,) = sweep("stock", "new", **case)
    (old,) = sweep(checkpoint_with_args, "old", **case)
    assert old.values.loss_bits == new.values.loss_bits


def test_record_describes_windows(sweep):
    record, _ = sweep(lengths=[16, 64], strides=[4])
    assert record.case.length == 16
    assert record.case.stride == 4
    assert record.values.min_context == 1
    assert 13 <= record.values.mean_context <= 16
    assert record.cost.tokens_per_second > 0
    assert record.cost.peak_memory_mb > 50
    # Only non-overlapping windows are also timed one by one.
    assert record.cost.tokens_per_second_batch_1 is None


def test_record_converts_loss_to_other_units(sweep):
    (record,) = sweep(strides=[4])
    lines = text_of("valid")
    words = sum(len(line.split()) for line in lines) + len(lines)
    size = len("".join(line + "\n" for line in lines).encode())
    assert record.values.words == words
    assert record.values.bytes == size
    bits = record.values.loss_bits * record.values.tokens
    assert record.values.perplexity == pytest.approx(2**record.values.loss_bits)
    assert record.values.word_perplexity == pytest.approx(2 ** (bits / words))
    assert record.values.bits_per_byte == pytest.approx(bits / size)


@pytest.mark.parametrize("stride", [2, "full"])
def test_loss_does_not_depend_on_batch_size(sweep, stride):
    (single,) = sweep(strides=[stride], memory_gb=1e-9, out="single")
    (batched,) = sweep(strides=[stride])
    assert single.cost.windows_per_batch == 1
    assert batched.cost.windows_per_batch > 8
    assert single.values.loss_bits == pytest.approx(batched.values.loss_bits, abs=1e-6)


def test_nonoverlapping_windows_are_also_timed_one_by_one(sweep):
    (single,) = sweep(memory_gb=1e-9, out="single")
    (batched,) = sweep()
    assert single.cost.tokens_per_second_batch_1 == single.cost.tokens_per_second
    assert batched.cost.tokens_per_second_batch_1 > 0
    assert batched.cost.tokens_per_second_batch_1 != batched.cost.tokens_per_second


GROWING = {"strides": [1], "overrides": {"alibi_scale": "dynamic"}, "lengths": [32]}


@pytest.mark.parametrize(
    ("model", "settings"), [("alibi", {}), ("transformer-xl", {}), ("alibi", GROWING)]
)
def test_compilation_on_gpu_is_not_timed(model, settings, trained, sweep, monkeypatch):
    """Each pass takes 1 s of a clock, and the first one of each kind 1,000,000 s more.

    The first windows of a model whose windows cannot share a pass have many lengths, which are
    rare. They are of another kind, because each is alone in its batch.
    """
    trained(model)
    cpu = torch.device("cpu")
    get_tensors = Split.tensors
    monkeypatch.setattr(evaluator, "find_device", lambda name: torch.device("cuda"))
    monkeypatch.setattr(Split, "tensors", lambda self, stride, _: get_tensors(self, stride, cpu))
    monkeypatch.setattr(text_evaluator, "PeakMemory", lambda _: SimpleNamespace(mb=lambda: 1.0))
    now = 0.0
    compiled = []
    compute_features = LoadedModel.features

    def compile_and_compute(self, tokens, last, state=None):
        nonlocal now
        rows, length = tokens.shape
        kind = (rows == 1, rows > 1 and length, [states.shape[0] for states in state or []])
        if kind not in compiled:
            compiled.append(kind)
            now += 1_000_000
        now += 1
        return compute_features(self, tokens, last, state)

    monkeypatch.setattr(LoadedModel, "features", compile_and_compute)
    monkeypatch.setattr(text_evaluator, "time", SimpleNamespace(perf_counter=lambda: now))
    (record,) = sweep(model, memory_gb=1e-3, **settings)
    assert len(compiled) >= 2
    assert 1 < record.cost.seconds < 1_000_000


INTERRUPTED = {"lengths": [8, 16], "strides": ["full", 1]}


@pytest.fixture
def interrupted(sweep, tmp_path, monkeypatch):
    """Interrupt a sweep of four cases at the fourth; return the records before each case."""
    path = tmp_path / "results.json"
    written = []
    measure = TextEvaluator.measure

    def interrupt_fourth(*arguments):
        if path.exists():
            written.append(load(path).results)
        if len(written) == 3:
            raise KeyboardInterrupt
        return measure(*arguments)

    monkeypatch.setattr(TextEvaluator, "measure", interrupt_fourth)
    with pytest.raises(KeyboardInterrupt):
        sweep(**INTERRUPTED)
    monkeypatch.setattr(TextEvaluator, "measure", measure)
    return written


def test_each_record_is_written_before_next_case(interrupted):
    assert [len(records) for records in interrupted] == [1, 2, 3]


def test_interrupted_sweep_resumes(interrupted, sweep, tmp_path):
    uninterrupted = sweep(**INTERRUPTED, out="uninterrupted")
    records = sweep(**INTERRUPTED)
    assert records[:3] == interrupted[-1]  # including the times
    assert list(map(without_times, records)) == list(map(without_times, uninterrupted))
    assert not list(tmp_path.glob(".*"))
    document = load(tmp_path / "results.json")
    assert document.results == records
    assert len(document.provenance.parts) == 2


def test_sweep_returns_records_of_results_file(sweep):
    records = sweep(**INTERRUPTED)
    (long, short) = sweep(lengths=[16, 8])
    assert long == records[2]
    assert short == records[0]


def test_split_is_known_from_an_evaluation_of_two(sweep, scored, tmp_path):
    test, valid = sweep(splits=("test", "valid"))
    assert test.case.text != valid.case.text
    scored.clear()
    assert sweep(splits=("valid",)) == [valid]
    assert not scored
    (half,) = sweep(splits=("valid",), precision="bf16")
    assert half.case.text == valid.case.text
    assert load(tmp_path / "results.json").results == [test, valid, half]
    assert sweep(splits=("test", "valid")) == [test, valid]


@pytest.fixture
def scored(monkeypatch):
    """Record the arguments of each scoring of a text."""
    calls = []
    sum_losses = text_evaluator.sum_losses

    def record(*arguments):
        calls.append(arguments)
        return sum_losses(*arguments)

    monkeypatch.setattr(text_evaluator, "sum_losses", record)
    return calls


def test_lengths_past_the_end_have_equal_results(sweep):
    (whole,) = sweep(lengths=[5000])
    tokens = whole.values.tokens
    assert whole.values.longest_window == tokens < 5000
    records = sweep(lengths=[64, tokens - 1, tokens, 5000, 9000], strides=["full", 16])
    by_case = {(record.case.length, record.case.stride): record for record in records}
    pairs = [
        (by_case[9000, 9000], by_case[5000, 5000]),
        (by_case[9000, 16], by_case[5000, 16]),
    ]
    for longest, past_end in pairs:
        assert longest.values.longest_window == tokens
        assert longest.values.loss_bits == past_end.values.loss_bits
        assert longest.values.mean_context == past_end.values.mean_context
    assert by_case[64, 64].values.longest_window == 64


def test_probe_sweep_resumes(sweep, probe, monkeypatch, tmp_path):
    data, checkpoint = probe
    case = {"data": data, "lengths": [TRAIN_LENGTH]}
    records = sweep(checkpoint, **case)
    assert [record.case.depth for record in records] == list(probes.DEPTHS)
    monkeypatch.setattr(ProbeEvaluator, "measure", pytest.fail)
    assert sweep(checkpoint, **case) == records
    with pytest.raises(UserInputError, match="results of kind probe, not text"):
        sweep(checkpoint)
    monkeypatch.undo()
    in_half = sweep(checkpoint, **case, precision="bf16")
    assert load(tmp_path / "results.json").results == records + in_half


def test_message_names_the_results_of_another_kind(sweep, tmp_path):
    """The first kind by name can be the one that is wanted."""
    sweep()
    out = tmp_path / "results.json"
    file = load(out)
    validation = replace(file.results[0], case=replace(file.results[0].case, kind="validation"))
    save(replace(file, results=[*file.results, validation]), out)
    with pytest.raises(UserInputError, match="results of kind validation, not text"):
        sweep()


def test_accuracies_of_another_probe_are_not_joined(sweep, probe, tmp_path):
    data, checkpoint = probe
    case = {"data": data, "lengths": [TRAIN_LENGTH]}
    sweep(checkpoint, **case)
    path = tmp_path / "results.json"
    path.write_text(path.read_text().replace(load(path).results[0].case.text, "0" * 64))
    with pytest.raises(UserInputError, match="results of another probe"):
        sweep(checkpoint, **case)


def test_probe_rejects_scores_that_are_not_finite(sweep, probe, tmp_path):
    data, checkpoint = probe
    state = torch.load(checkpoint, weights_only=True)
    for name in ("bias", "weight"):
        state["model"][f"decoder.layers.1.fc2.{name}"][0] = 3e38  # infinite in a sum of two
    torch.save(state, checkpoint)
    with pytest.raises(UserInputError, match="not finite"):
        sweep(checkpoint, data=data, lengths=[TRAIN_LENGTH])
    assert not (tmp_path / "results.json").exists()


def test_probe_memory_limits_the_batch(sweep, probe, monkeypatch):
    data, checkpoint = probe
    monkeypatch.setattr(probes, "SEQUENCES_PER_CASE", 3)
    batch_sizes = []
    features = LoadedModel.features

    def record(model, tokens, *arguments):
        batch_sizes.append(len(tokens))
        return features(model, tokens, *arguments)

    monkeypatch.setattr(LoadedModel, "features", record)
    sweep(checkpoint, data=data, lengths=[TRAIN_LENGTH], memory_gb=1e-9)
    assert batch_sizes == [1] * 3 * len(probes.DEPTHS)


@pytest.mark.ci
def test_probe_evaluates_a_model_of_fairseq(sweep, probe, tmp_path):
    data, _ = probe
    checkpoint = train(data, tmp_path / "stock", Trained.FLAGS["stock"])
    records = sweep(checkpoint, data=data, lengths=[TRAIN_LENGTH])
    assert [record.series.method.notation for record in records] == ["sinusoidal"] * len(
        probes.DEPTHS
    )


def test_memory_passes_between_windows(sweep):
    def record_of(length, memory):
        case = {"lengths": [length], "overrides": {"mem_len": memory}}
        (record,) = sweep("transformer-xl", f"{length}-{memory}", **case)
        return record

    # A memory of all tokens cuts nothing off. The segments then compute one long window.
    segments = record_of(16, 5000)
    window = record_of(5000, 5000)
    assert segments.values.loss_bits == pytest.approx(window.values.loss_bits, abs=1e-5)
    assert segments.values.mean_context == pytest.approx(window.values.mean_context, abs=1e-5)

    # After the first segments a token sees a memory of 24 inputs and 1 to 16 of its segment.
    short = record_of(16, 24)
    without = record_of(16, 0)
    assert short.values.loss_bits != without.values.loss_bits
    assert 28 < short.values.mean_context < 24 + 8.5
    assert without.values.mean_context == pytest.approx(8.5, abs=0.1)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_loss_is_close(sweep, precision):
    (full,) = sweep()
    (half,) = sweep(precision=precision, out="half")
    assert half.reading.precision == precision
    assert 0 < abs(half.values.loss_bits - full.values.loss_bits) < 0.02


@pytest.fixture
def old_checkpoint(trained, tmp_path):
    """Write a checkpoint of a version without two options, whose optimizer was reset once."""
    state = torch.load(trained("rotary"), weights_only=False)
    history = state["optimizer_history"]
    history.insert(0, {**history[-1], "num_updates": 7})
    del state["cfg"]["model"]["rotary_scaling"]
    del state["cfg"]["model"]["score_scaling"]
    torch.save(state, tmp_path / "old.pt")
    return tmp_path / "old.pt"


def test_checkpoint_of_moved_folder_is_not_measured_again(sweep, trained, scored, tmp_path):
    first_path = tmp_path / "first" / "checkpoint_last.pt"
    first_path.parent.mkdir()
    shutil.copyfile(trained("alibi"), first_path)
    sweep(first_path, lengths=[8])
    scored.clear()
    first_path.parent.rename(tmp_path / "moved")
    moved_path = tmp_path / "moved" / "checkpoint_last.pt"
    records = sweep(moved_path, lengths=[8, 16])
    assert [record.case.length for record in records] == [8, 16]
    assert len(scored) == 1
    # A copy under another name is another checkpoint of the folder.
    best_path = moved_path.with_name("checkpoint_best.pt")
    shutil.copyfile(moved_path, best_path)
    (best,) = sweep(best_path, lengths=[8])
    assert best.checkpoint == str(best_path)


@pytest.mark.ci
def test_sweep_reads_checkpoints_of_earlier_versions(sweep, old_checkpoint):
    perplexities = set()
    for overrides in ({}, {"rotary_scaling": "yarn:2"}, {"score_scaling": "logn"}):
        case = {"lengths": [64], "overrides": overrides}
        (new,) = sweep("rotary", f"new{len(perplexities)}", **case)
        (old,) = sweep(old_checkpoint, f"old{len(perplexities)}", **case)
        assert old.values.perplexity == new.values.perplexity
        assert old.updates == 12
        perplexities.add(new.values.perplexity)
    assert len(perplexities) == 3
