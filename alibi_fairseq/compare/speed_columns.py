"""Speeds and memory of models, relative to sinusoidal, as columns of the tables of a comparison."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from ..positions.spec import MethodSpec
from ..reporting.perplexity_by_length import MEMORY, TRAINING_SPEED, Columns
from ..results.names import machine_of
from ..results.record import Benchmark
from ..results.results_file import BenchmarkFile

#: Position method that speeds and memory are relative to.
BASELINE = "sinusoidal"
#: Column titles of the speeds, by phase.
SPEED_TITLES = {"train": TRAINING_SPEED, "evaluate": "evaluation speed"}


def ratios(records: Sequence[Benchmark]) -> Columns:
    """Return speeds and memory relative to the baseline, as table columns.

    A speed is the median, over rounds, of the ratio within a round.
    """
    columns: dict[str, dict] = {title: {} for title in (*SPEED_TITLES.values(), MEMORY)}
    for record in records:
        base = baseline_of(record, records)
        if base is None:
            continue
        assert record.model is not None
        key = record.model.key_of_any_corpus
        base_seconds: Any = base.measured["round_seconds"]
        seconds: Any = record.measured["round_seconds"]
        speedups = [before / after for before, after in zip(base_seconds, seconds)]
        title = SPEED_TITLES[str(record.case["phase"])]
        columns[title][key] = f"{statistics.median(speedups):.2f}"
        base_memory: Any = base.measured.get("peak_memory_mb")
        memory: Any = record.measured.get("peak_memory_mb")
        if base_memory and memory:
            columns[MEMORY][key] = f"{memory / base_memory:.2f}"
    return columns


def options_of(record: Benchmark) -> tuple[tuple[str, str], ...]:
    """Return the training options of a timed model that are the same for all corpora."""
    assert record.model is not None
    return record.model.options_of_any_corpus


def baseline_of(record: Benchmark, records: Sequence[Benchmark]) -> Benchmark | None:
    """Return the record of the baseline with the same phase and training length, or None.

    A model with more options is not the baseline.
    """
    baseline = MethodSpec.plain(BASELINE)
    candidates = []
    for candidate in records:
        assert candidate.model is not None
        assert record.model is not None
        same_phase = candidate.case["phase"] == record.case["phase"]
        same_length = candidate.model.train_length == record.model.train_length
        if candidate.model.method == baseline and same_phase and same_length:
            candidates.append(candidate)
    return min(candidates, key=lambda candidate: len(options_of(candidate)), default=None)


def speeds_note(results: BenchmarkFile) -> str:
    """Return the sentence on the conditions of speeds and memory."""
    lengths = {str(record.case["tokens"]) for record in results.records if is_evaluation(record)}
    return (
        "Speeds and memory are ratios to sinusoidal embeddings of the same training length. "
        f"Evaluation speed is that of windows of {' or '.join(lengths)} tokens. "
        f"Machine: {machine_of(results)}."
    )


def is_evaluation(record: Benchmark) -> bool:
    """Return True if a record is the speed of an evaluation, and not of a training."""
    return record.case["phase"] == "evaluate"
