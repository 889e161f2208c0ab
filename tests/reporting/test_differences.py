"""Tables of differences between models, from results files."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from results_documents import Record, cells_of, changed, evaluation_record, results_of
from scipy import stats

from alibi_fairseq.positions.spec import MethodSpec
from alibi_fairseq.reporting.differences import (
    SEED_SPREAD,
    difference_sections,
    one_seed_note,
    seed_limit,
)
from studies.analysis.study_results import StudyResults

ROOT = Path(__file__).parents[2]
PERPLEXITIES = {"alibi": [16.0, 16.4, 16.2], "rotary": [18.0, 19.0, 18.6]}


def measured(seeds: int = 3, **changes) -> list[Record]:
    """Return the measurements of two methods at two lengths, with the perplexities above."""
    records = []
    for method, perplexities in PERPLEXITIES.items():
        for seed, perplexity in enumerate(perplexities[:seeds], start=1):
            for length, factor in ((64, 1.0), (128, 1.1 if method == "rotary" else 1.0)):
                record = evaluation_record(
                    factor * perplexity, method=method, length=length, seed=seed, **changes
                )
                records.append(record)
    return records


def sections_of(records: list[Record]) -> list[str]:
    return difference_sections(results_of(*records))


def rows_of(sections: list[str]) -> dict[str, list[str]]:
    return {row[0]: row[1:] for row in cells_of(sections[0])[1:]}


def test_differences_have_intervals_over_seeds():
    sections = sections_of(measured())
    rows = rows_of(sections)
    assert list(rows) == ["Rotary, L=64 vs. ALiBi, L=64"]
    logs = {method: np.log(values) for method, values in PERPLEXITIES.items()}
    welch = stats.ttest_ind(logs["rotary"], logs["alibi"], equal_var=False)
    low, high = welch.confidence_interval(0.95)
    value = logs["rotary"].mean() - logs["alibi"].mean()
    value, low, high = (100 * math.expm1(nats) for nats in (value, low, high))
    at_length, beyond = rows["Rotary, L=64 vs. ALiBi, L=64"]
    assert at_length == f"{value:+.1f}% ({low:+.1f} … {high:+.1f})"
    assert beyond.startswith(f"{100 * (1.1 * (1 + value / 100) - 1):+.1f}%")
    assert "over seeds, and are not corrected" in sections[0]
    assert "With --per-document" in sections[0]


def test_documents_narrow_what_they_share():
    """Two documents of different difficulty; the note says that they are part of the interval."""
    documents = {"documents": "empty-lines", "document_tokens": [400, 600]}
    records = measured()
    for index, record in enumerate(records):
        total = record.loss_bits * 1000
        documents["document_bits"] = [total * 0.3, total * 0.7]
        records[index] = changed(record, **documents)
    sections = sections_of(records)
    assert "over seeds and documents" in sections[0]
    assert "--per-document" not in sections[0]
    plain = rows_of(sections_of(measured()))
    shown = rows_of(sections)
    for name, cells in shown.items():
        for cell, expected in zip(cells, plain[name], strict=True):
            assert cell.split(" ")[0] == expected.split(" ")[0]


def test_documents_without_scored_tokens_do_not_count():
    """They end before --score-from."""

    def rows_with(*empty: int) -> dict[str, list[str]]:
        documents = {"document_tokens": [400, 600, *empty]}
        records = measured()
        for index, record in enumerate(records):
            total = record.loss_bits * 1000
            part = 0.3 if record.method.notation == "rotary" else 0.4
            documents["document_bits"] = [part * total, (1 - part) * total, *map(float, empty)]
            records[index] = changed(record, **documents)
        return rows_of(sections_of(records))

    assert rows_with(0, 0) == rows_with()


@pytest.mark.parametrize("other", [{"document_tokens": [500, 500]}, None])
def test_other_documents_are_not_paired(other):
    """Their intervals are over seeds only. None: the losses by document are missing."""
    records = measured()
    for index, record in enumerate(records):
        total = record.loss_bits * 1000
        documents = {
            "documents_sha256": "a" * 64,
            "document_tokens": [400, 600],
            "document_bits": [total * 0.3, total * 0.7],
        }
        if record.method.notation == "rotary":
            documents = {**documents, **other} if other else {}
        records[index] = changed(record, **documents)
    assert sections_of(records) == sections_of(measured())


def test_variant_is_paired_with_its_own_checkpoints():
    """The seeds of ALiBi differ far more than a seed from its variant."""
    perplexities = {None: [16.0, 30.0, 22.0], "limited": [16.1, 30.1, 22.2]}
    records = []
    for label, values in perplexities.items():
        seeds = [1, 2, 3] if label is None else [3, 1, 2]  # in any order
        for seed in seeds:
            records.append(
                evaluation_record(
                    values[seed - 1],
                    length=64,
                    seed=seed,
                    label=label,
                    overrides={"attention_window": "8"} if label else None,
                    checkpoint="checkpoint_last.pt",
                    checkpoint_sha256=str(seed) * 64,
                )
            )
    ((cell,),) = rows_of(sections_of(records)).values()
    logs = {label: np.log(values) for label, values in perplexities.items()}
    paired = stats.ttest_rel(logs["limited"], logs[None])
    low, high = (100 * math.expm1(nats) for nats in paired.confidence_interval(0.95))
    assert cell.endswith(f"({low:+.1f} … {high:+.1f})")


def evaluated_checkpoints(name: str, losses: dict[int, tuple[float, str]]) -> list[Record]:
    """Return the evaluations of one checkpoint of each seed's run.

    Args:
        name: its file name.
        losses: perplexity by seed, with a digit of the checkpoint's hash.
    """
    records = []
    for seed, (perplexity, digit) in losses.items():
        records.append(
            evaluation_record(
                perplexity,
                length=64,
                seed=seed,
                updates=100,
                checkpoint=f"run-{seed}/{name}",
                checkpoint_sha256=digit * 64,
            )
        )
    return records


def test_two_checkpoints_of_each_run_are_paired():
    """fairseq copies the last checkpoint to the best one, if it is the best one."""
    best = {1: (16.0, "1"), 2: (30.0, "2"), 3: (22.0, "3")}
    last = {1: (16.5, "4"), 2: (30.0, "2"), 3: (22.0, "3")}
    records = evaluated_checkpoints("checkpoint_last.pt", last)
    records += evaluated_checkpoints("checkpoint_best.pt", best)
    ((cell,),) = rows_of(sections_of(records)).values()
    logs = [np.log([perplexity for perplexity, _ in side.values()]) for side in (last, best)]
    paired = stats.ttest_rel(logs[1], logs[0])
    value, low, high = (
        100 * math.expm1(nats)
        for nats in (logs[1].mean() - logs[0].mean(), *paired.confidence_interval(0.95))
    )
    assert cell == f"{value:+.1f}% ({low:+.1f} … {high:+.1f})"


def test_checkpoints_of_overlapping_seeds_are_not_paired():
    """A difference between the runs of both sides would leave out the others."""
    best = {1: (16.0, "1"), 2: (30.0, "2"), 3: (22.0, "3")}
    last = {2: (30.0, "2"), 3: (22.0, "3"), 4: (17.0, "4")}
    records = evaluated_checkpoints("checkpoint_last.pt", last)
    records += evaluated_checkpoints("checkpoint_best.pt", best)
    ((cell,),) = rows_of(sections_of(records)).values()
    logs = [np.log([perplexity for perplexity, _ in side.values()]) for side in (last, best)]
    welch = stats.ttest_ind(logs[1], logs[0], equal_var=False)
    low, high = (100 * math.expm1(nats) for nats in welch.confidence_interval(0.95))
    assert cell.endswith(f"({low:+.1f} … {high:+.1f})")


def test_one_seed_states_what_means_nothing():
    (note,) = sections_of(measured(seeds=1))
    assert note == one_seed_note()
    assert "below 3% at the training length and below 8% beyond it mean nothing" in note


@pytest.mark.parametrize(
    "earlier", [{"subset": "test"}, {"data_sha256": "c" * 64}, {"score_from": 32}, {"tokens": 900}]
)
def test_other_text_at_the_same_lengths_is_not_mixed_in(earlier):
    """The table of a text is the same with results on another one, which has its own."""
    expected = cells_of(sections_of(measured(data_sha256="a" * 64))[0])
    others = [changed(record, loss_bits=3.0 * record.loss_bits) for record in measured()]
    others = [changed(record, **{"data_sha256": "a" * 64, **earlier}) for record in others]
    sections = sections_of([*measured(data_sha256="a" * 64), *others])
    assert len(sections) == 2
    assert expected in [cells_of(section) for section in sections]


def test_single_model_has_no_differences():
    records = measured()
    records = [record for record in records if record.method.notation == "alibi"]
    assert sections_of(records) == []


def test_first_method_is_the_reference_without_alibi():
    records = measured()
    for index, record in enumerate(records):
        if record.method.notation == "alibi":
            records[index] = changed(record, method="sinusoidal")
    assert list(rows_of(sections_of(records))) == [
        "Rotary, L=64 vs. Sinusoidal, L=64",
    ]


def test_alibi_with_a_window_is_no_reference_beside_plain_alibi():
    records = measured()
    records += [
        changed(record, method=MethodSpec.parse("alibi/attention_window=16"))
        for record in records
        if record.method.notation == "alibi"
    ]
    for some in (records, records[::-1]):
        rows = rows_of(sections_of(some))
        assert len(rows) == 2
        for label in rows:
            assert label.endswith("vs. ALiBi, L=64 (attention-window none)")


def test_sliding_windows_have_a_table_of_their_own():
    records = measured()
    sliding = [changed(record, stride=16) for record in records]
    plain, of_stride = sections_of([*records, *sliding])
    assert [plain] == sections_of(records)
    assert of_stride == plain.replace("non-overlapping", "S=16")


def test_spread_over_seeds_is_that_of_the_committed_models():
    spreads: dict[int, list[float]] = {}
    for key, losses in StudyResults.load(ROOT / "results/small_models/primary").losses.items():
        if key.stride == key.length and not key.variant:
            multiple = key.length // key.train_length
            spreads.setdefault(multiple, []).append(losses.nats.mean(axis=1).std(ddof=1))
    pooled = {multiple: math.sqrt(np.mean(np.square(s))) for multiple, s in spreads.items()}
    assert pooled.pop(1) == pytest.approx(SEED_SPREAD["at"], abs=5e-5)
    assert max(pooled.values()) == pytest.approx(SEED_SPREAD["beyond"], abs=5e-5)
    # 95% of the differences of two normal variables with this standard deviation.
    random = np.random.default_rng(1)
    pairs = random.normal(0, SEED_SPREAD["at"], (2, 100_000))
    within = np.abs(pairs[0] - pairs[1]) < math.log1p(seed_limit(SEED_SPREAD["at"]) / 100)
    assert within.mean() == pytest.approx(0.95, abs=0.003)
