"""Speeds of models: their baseline, models that share a name, and reuse of measurements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import pytest
from fakes import TINY
from results_documents import cells_of, document, evaluation_record

from alibi_fairseq.compare import speeds
from alibi_fairseq.compare.comparison_runs import list_runs
from alibi_fairseq.compare.config_files import from_mapping
from alibi_fairseq.compare.speed_columns import ratios, speeds_note
from alibi_fairseq.compare.speeds import load_or_measure_speeds
from alibi_fairseq.positions.spec import MethodSpec
from alibi_fairseq.reporting.perplexity_by_length import length_table
from alibi_fairseq.results.model import Model
from alibi_fairseq.results.record import Benchmark, Measurement

WINDOW = {"attention_window": "8"}
CLAMPED = {"clamp_learned_positions": True}


def timed(
    method: str,
    seconds: float,
    options: Mapping[str, str] = MappingProxyType({}),
    phase: str = "train",
    **measured,
) -> Benchmark:
    """Return the record of a timed model."""
    options = {"data": "data", **options}
    return Benchmark(
        name="an update",
        case={"phase": phase},
        model=Model(method=MethodSpec.plain(method), train_length=64, options=options),
        measured={"round_seconds": [seconds, seconds], **measured},
    )


def trained(method: str, options: Mapping[str, str], lr: float, **changes) -> Measurement:
    """Return a measurement of a model, trained on another corpus with another learning rate."""
    options = {"data": "other", "lr": str(lr), **options}
    return evaluation_record(method=method, seed=7, options=options, **changes)


def test_models_of_one_name_have_separate_speeds():
    records = [timed("sinusoidal", 6.0), timed("alibi", 3.0), timed("alibi", 2.0, WINDOW)]
    results = document(trained("alibi", {}, 0.1), trained("alibi", WINDOW, 0.2))
    table = cells_of(length_table(results.records, ratios(records)))
    column = table[0].index("training speed")
    speeds = {row[0]: row[column] for row in table[1:]}
    assert sorted(speeds.values()) == ["2.00", "3.00"]
    (windowed,) = [name for name in speeds if "--attention-window 8" in name]
    assert speeds[windowed] == "3.00"


def test_variants_lack_speeds_of_evaluation():
    records = []
    for phase in ("train", "evaluate"):
        for method in ("sinusoidal", "learned"):
            memory = 5.0 if phase == "train" else None
            records.append(timed(method, 1.0, phase=phase, peak_memory_mb=memory))
    as_trained = trained("learned", {}, 0.1, overrides=CLAMPED)
    limited = {**CLAMPED, "attention_window": 8}
    variant = as_trained.with_model(overrides=limited, label="limited")
    columns = {**ratios(records), "copy at 4 L": {records[1].model.key_of_any_corpus: "75%"}}
    table = cells_of(length_table(document(as_trained, variant).records, columns))
    assert table[0][-4:] == ["training speed", "evaluation speed", "memory", "copy at 4 L"]
    assert table[1][0] == "Learned, L=64 (clamp_learned_positions=true)"
    assert table[1][-4:] == ["1.00", "1.00", "1.00", "75%"]
    assert table[2][0] == "Learned, L=64 (limited)"
    assert table[2][-4:] == ["1.00", "–", "1.00", "–"]


def test_baseline_is_the_model_without_options():
    records = [timed("sinusoidal", 1.0, WINDOW), timed("sinusoidal", 2.0)]
    columns = ratios(records)
    speeds = [columns["training speed"][record.model.key_of_any_corpus] for record in records]
    assert speeds == ["2.00", "1.00"]


def test_note_states_baseline_length_and_machine():
    records = [timed("alibi", 1.0), timed("alibi", 1.0, phase="evaluate")]
    records[1].case["tokens"] = 256
    assert speeds_note(document(*records, kind="benchmark")) == (
        "Speeds and memory are ratios to sinusoidal embeddings of the same training length. "
        "Evaluation speed is that of windows of 256 tokens. "
        "Machine: a processor, 2 threads, fp32."
    )


@pytest.fixture
def timed_lengths(monkeypatch):
    """Return the evaluation length of each measurement, with one timed round on one thread."""
    lengths = []
    time_in_turns = speeds.time_in_turns

    def time_and_record(models, length):
        lengths.append(length)
        return time_in_turns(models, length)

    monkeypatch.setattr(speeds, "ROUNDS", 1)
    monkeypatch.setattr(speeds, "cores", lambda: 1)
    monkeypatch.setattr(speeds, "time_in_turns", time_and_record)
    return lengths


def speed_columns(comparison, folder):
    """Return the columns with the speeds of a comparison's models."""
    return ratios(load_or_measure_speeds(comparison, folder).records)


@pytest.mark.ci
def test_speeds_are_measured_again_at_new_longest_length(data_bin, tmp_path, timed_lengths):
    comparison = from_mapping(
        {
            "corpora": [{"name": "mine", "data": str(data_bin)}],
            "methods": "alibi",
            "train_lengths": 16,
            "eval_lengths": [16, 32],
            "tokens_per_update": 128,
            "train_flags": TINY,
        }
    )
    first = speed_columns(comparison, tmp_path)
    assert speed_columns(replace(comparison, eval_lengths=(32,)), tmp_path) == first
    assert timed_lengths == [32]
    longer = replace(comparison, eval_lengths=(16, "4x"))
    second = speed_columns(longer, tmp_path)
    assert speed_columns(longer, tmp_path) == second
    assert timed_lengths == [32, 64]


@pytest.mark.ci
def test_speeds_are_measured_again_at_another_training_length(data_bin, tmp_path, timed_lengths):
    comparison = from_mapping(
        {
            "corpora": [{"name": "mine", "data": str(data_bin)}],
            "methods": "alibi",
            "train_lengths": 16,
            "eval_lengths": 32,
            "tokens_per_update": 128,
            "train_flags": TINY,
        }
    )
    load_or_measure_speeds(comparison, tmp_path)
    shorter = load_or_measure_speeds(replace(comparison, train_lengths=(8,)), tmp_path)
    assert {record.model.train_length for record in shorter.records} == {8}
    assert timed_lengths == [32, 32]


@pytest.mark.ci
def test_speeds_are_measured_again_after_an_edit(data_bin, tmp_path, timed_lengths, monkeypatch):
    comparison = from_mapping(
        {
            "corpora": [{"name": "mine", "data": str(data_bin)}],
            "methods": "alibi",
            "train_lengths": 16,
            "eval_lengths": 16,
            "tokens_per_update": 128,
            "train_flags": TINY,
        }
    )
    for version in ("a" * 64, "a" * 64, "b" * 64):
        version_of = {("alibi",): version}  # as if ALiBi came from a plugin
        monkeypatch.setattr(speeds, "plugin_sha256", version_of.get)
        speed_columns(comparison, tmp_path)
    assert timed_lengths == [16, 16]


def test_variants_of_learned_are_timed_past_the_training_length(data_bin, tmp_path, timed_lengths):
    comparison = from_mapping(
        {
            "corpora": [{"name": "mine", "data": str(data_bin)}],
            "methods": ["learned/score_scaling=logn", "learned+learned/attention_window=8+0"],
            "train_lengths": 16,
            "eval_lengths": 32,
            "tokens_per_update": 128,
            "train_flags": TINY.replace("--decoder-layers 1", "--decoder-layers 2"),
        }
    )
    speed_columns(comparison, tmp_path)
    assert timed_lengths == [32]
    for model in list_runs(comparison, tmp_path):
        evaluation = model.run.eval_steps[0]
        assert evaluation.config.overrides["clamp_learned_positions"]
