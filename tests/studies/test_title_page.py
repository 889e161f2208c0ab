"""The outcome and the page of the title test, compared with the protocol's formulas."""

from __future__ import annotations

import copy
import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
from results_documents import cells_of
from scipy import stats

from studies.__main__ import main
from studies.analysis.compared_models import ComparedLosses, ComparedModels
from studies.analysis.losses import DocumentLosses
from studies.analysis.study_results import StudyResults
from studies.title.outcome import (
    BASELINE_NOT_TRAINED,
    CONTRADICTED,
    FALLS,
    INCONCLUSIVE,
    RISES,
    SUPPORTED,
    UNKNOWN,
    Budget,
    title_outcome,
)
from studies.title.page import title_summary, write_title_page

ROOT = Path(__file__).parents[2]
SECONDARY = ROOT / "results" / "small_models" / "secondary"
MODELS = ComparedModels("books", 32)
TOKENS = {"3M": 3_000_000, "12M": 12_000_000, "49M": 48_000_000}


# The outcome


def budget(name: str, cost: float, lead: float, seeds=(1, 2, 3), noise=0.001) -> Budget:
    """Return a budget of models with this cost and lead, in nats."""
    levels = {("alibi", 32): 4.0 + cost, ("alibi", 128): 4.0, ("sinusoidal", 128): 4.0 + lead}
    losses = {}
    for index, ((method, trained), level) in enumerate(levels.items()):
        random = np.random.default_rng(index)
        nats = level + noise * random.standard_normal((len(seeds), 23))
        nats -= nats.mean() - level
        key = MODELS.key(f"{method}-{trained // 32}@4")
        losses[key] = DocumentLosses(key.model, tuple(seeds), nats)
    study = StudyResults(Path(name), (), ())
    return Budget(name, study, ComparedLosses(MODELS, losses), TOKENS[name])


def budgets_of(*effects: tuple[float, float], noise: float = 0.001) -> list[Budget]:
    budgets = []
    for name, (cost, lead) in zip(TOKENS, effects):
        budgets.append(budget(name, cost, lead, noise=noise))
    return budgets


def outcome_of(*effects: tuple[float, float], noise: float = 0.001):
    return title_outcome(budgets_of(*effects, noise=noise))


@pytest.mark.parametrize(
    ("effects", "expected"),
    [
        ([(0.01, 0.2), (0.02, 0.1), (0.03, 0.05)], SUPPORTED),
        ([(0.01, 0.2), (0.02, 0.1), (0.08, 0.05)], CONTRADICTED),
        ([(0.01, 0.2), (0.02, 0.1), (0.05, 0.05)], INCONCLUSIVE),
        ([(0.01, 0.2), (0.02, 0.1), (0.08, 0.099)], BASELINE_NOT_TRAINED),  # +10.4%
        ([(0.01, 0.2), (0.02, 0.05), (0.03, 0.06)], BASELINE_NOT_TRAINED),  # it rises
        ([(0.01, 0.05)], BASELINE_NOT_TRAINED),  # no smaller budget
    ],
)
def test_outcomes_of_the_protocol(effects, expected):
    assert outcome_of(*effects).outcome == expected


@pytest.mark.parametrize(
    ("effects", "first", "last"),
    [
        (
            (0.03, 0.05),
            "the claim holds.** Evaluated in windows of 128 tokens",
            "trained long would be equally good after about 76.2M tokens.",
        ),
        (
            (0.08, 0.05),
            "the claim doesn't hold**, just as in",
            "leaves its perplexity 8.3% higher (8.3% to 8.4%).",
        ),
        (
            (0.05, 0.05),
            "neither side is clearly better.**",
            "leaves its perplexity 5.1% higher (5.1% to 5.2%).",
        ),
        (
            (0.08, 0.099),
            "the baseline is still undertrained.**",
            "trained long would be equally good after about 73.9M tokens.",
        ),
    ],
)
def test_summary_says_what_was_found(effects, first, last):
    budgets = budgets_of((0.01, 0.2), (0.02, 0.1), effects)
    summary = " ".join(title_summary(title_outcome(budgets), budgets).split())
    assert first in summary
    assert summary.endswith(last)
    has_baseline = "still undertrained" not in summary
    assert ("says nothing about the paper" in summary) != has_baseline


def test_end_of_the_interval_of_lead_decides():
    """+9.9% is below the limit, but with noise, its interval is not."""
    effects = [(0.02, 0.2), (0.03, math.log(1.099))]
    assert outcome_of(*effects, noise=0.0001).lead_is_published
    assert not outcome_of(*effects, noise=0.01).lead_is_published


@pytest.mark.parametrize(
    ("e6", "expected"),
    [
        ((-0.2, -0.1, -0.05), RISES),
        ((-0.1, -0.2, -0.3), FALLS),
        ((-0.2, -0.1, -0.1), UNKNOWN),
        ((-0.2, -0.1, -0.15), UNKNOWN),
        ((-0.2,), UNKNOWN),
    ],
)
def test_direction_needs_every_step(e6, expected):
    outcome = outcome_of(*((0.0, -value) for value in e6))
    assert outcome.direction == expected
    changes = [after - before for before, after in zip(e6, e6[1:])]
    assert [step.value for step in outcome.steps] == pytest.approx(changes)


@pytest.mark.parametrize(
    ("e6", "expected"),
    [
        ((-0.10, -0.05), 48e6),  # as far again on the logarithmic axis
        ((-0.10, -0.04), 12e6 * 4 ** (2 / 3)),
        ((-0.10, -0.06), None),  # beyond four times the budget
        ((-0.05, 0.05), None),  # crossed already
        ((-0.05, -0.10), None),
    ],
)
def test_line_through_the_last_two_budgets(e6, expected):
    outcome = outcome_of(*((0.0, -value) for value in e6))
    assert outcome.crossing == (None if expected is None else pytest.approx(expected))
    assert outcome.verdict.endswith("at this budget") == (expected is not None)


def test_budget_without_all_seeds_does_not_count():
    complete = budget("3M", 0.01, 0.2)
    incomplete = budget("12M", 0.02, 0.05, seeds=(1, 2))
    assert title_outcome([complete, incomplete]).budget is complete
    assert title_outcome([incomplete]) is None
    assert len(incomplete.missing) == 3


def test_step_has_the_variance_of_four_groups_of_models():
    """The formula of the protocol: a term per group of seeds, and one of the books."""
    before = budget("3M", 0.01, 0.2, noise=0.05)
    after = budget("12M", 0.02, 0.1, noise=0.05)
    groups = []
    for part in (after, before):
        groups += [part.losses.find("alibi-1@4").nats]
        groups += [part.losses.find("sinusoidal-4@4").nats]
    signs = (1, -1, -1, 1)
    by_book = sum(sign * group.mean(axis=0) for sign, group in zip(signs, groups))
    terms = [(group.mean(axis=1).var(ddof=1) / 3, 2) for group in groups]
    terms.append((by_book.var(ddof=1) / 23, 22))
    low, high = interval(terms, by_book.mean())
    (step,) = title_outcome([before, after]).steps
    assert step.interval() == pytest.approx((low, high), rel=1e-6)


def interval(terms, mean: float) -> tuple[float, float]:
    """Return a 95% interval by Satterthwaite's approximation, from SciPy's quantile."""
    variance = sum(term for term, _ in terms)
    degrees = variance**2 / sum(term**2 / n for term, n in terms)
    margin = stats.t.ppf(0.975, degrees) * math.sqrt(variance)
    return mean - margin, mean + margin


# The page, written from models of 128 and 512 tokens


def is_full(result: dict, length: int) -> bool:
    """Return True for a model as trained, in windows of a length that do not overlap."""
    case = result["case"]
    return case["length"] == case["stride"] == length and "variant" not in result["reading"]


def scale_losses(result: dict, factor: float) -> None:
    """Multiply the losses by document."""
    bits = result["values"]["document_bits"]
    result["values"]["document_bits"] = [factor * value for value in bits]


def copy_budget(folder: Path, seeds=(1, 2, 3), shift: float = 0.0, factor: int = 1) -> None:
    """Copy models of 3.1M tokens, with evaluations at S = 16.

    Args:
        shift: change of the losses of sinusoidal embeddings, as a fraction.
        factor: of the number of training tokens.
    """
    for method, length in (("alibi", 128), ("alibi", 512), ("sinusoidal", 512)):
        for seed in seeds:
            name = f"wikipedia-{method}-{length}-seed{seed}"
            cell = folder / "cells" / name
            shutil.copytree(SECONDARY / "cells" / name, cell)
            evaluation = json.loads((cell / "evaluation.json").read_text())
            results = evaluation["results"]
            if length == 512:
                (full,) = [result for result in results if is_full(result, 512)]
                sliding = copy.deepcopy(full)
                sliding["case"]["stride"] = 16
                scale_losses(sliding, 0.9)
                results.append(sliding)
            if method == "sinusoidal":
                for result in results:
                    scale_losses(result, 1 + shift)
            (cell / "evaluation.json").write_text(json.dumps(evaluation))
            training = json.loads((cell / "training.json").read_text())
            training["results"][-1]["cost"]["trained_tokens"] *= factor
            (cell / "training.json").write_text(json.dumps(training))


def read_nats(folder: Path) -> dict[tuple, np.ndarray]:
    """Return (method, training length, length, stride, variant) -> (seeds, documents) losses."""
    nats: dict[tuple, list] = {}
    for path in sorted(folder.glob("cells/*/evaluation.json")):
        _, method, length, _ = path.parent.name.split("-")
        for result in json.loads(path.read_text())["results"]:
            case, values = result["case"], result["values"]
            if case["corpus"] == "wikipedia":
                variant = result["reading"].get("variant", "")
                key = (method, int(length), case["length"], case["stride"], variant)
                bits = np.array(values["document_bits"]) / values["document_tokens"]
                nats.setdefault(key, []).append(bits * math.log(2))
    return {key: np.array(values) for key, values in nats.items()}


def expected_cell(nats: dict, first: tuple, second: tuple) -> tuple[float, float, float]:
    """Return the change from the second to the first evaluation and its interval, in percent."""
    by_document = nats[first].mean(axis=0) - nats[second].mean(axis=0)
    sides = [nats[first], nats[second]]
    if first[:2] == second[:2]:  # the same models
        sides = [nats[first] - nats[second]]
    terms = [(side.mean(axis=1).var(ddof=1) / len(side), len(side) - 1) for side in sides]
    terms.append((by_document.var(ddof=1) / len(by_document), len(by_document) - 1))
    values = (by_document.mean(), *interval(terms, by_document.mean()))
    return tuple(100 * math.expm1(value) for value in values)


def parse_cell(text: str) -> list[float]:
    """Return the numbers of ``+1.0% (+0.5% … +1.5%)``."""
    change, _, rest = text.partition(" (")
    return [float(part.rstrip("%)")) for part in (change, *rest.split(" … "))]


def table_after(page: str, heading: str) -> list[list[str]]:
    section = page.split(f"\n{heading}\n")[1]
    start = section.index("\n|")
    return cells_of(section[start:].strip().partition("\n\n")[0])


@pytest.fixture
def results(tmp_path) -> Path:
    copy_budget(tmp_path / "3M")
    copy_budget(tmp_path / "12M", shift=-0.02, factor=4)
    return tmp_path


def test_page_has_the_effects_of_the_json(results):
    path = write_title_page(results, ComparedModels("wikipedia", 128))
    header, *rows = table_after(path.read_text(), "## Cost, lead, and short vs. long")
    assert header == ["tokens", "windows", "cost", "lead", "short vs. long"]
    assert [row[1] for row in rows] == ["no overlap", "no overlap", "S = 16", "S = 16"]
    for row, name in zip(rows, ("3M", "12M", "3M", "12M"), strict=True):
        nats = read_nats(results / name)
        stride = 16 if row[1] == "S = 16" else 512
        short = ("alibi", 128, 512, stride, "")
        long = ("alibi", 512, 512, stride, "")
        sinusoidal = ("sinusoidal", 512, 512, stride, "")
        pairs = ((short, long), (sinusoidal, long), (short, sinusoidal))
        for cell, (first, second) in zip(row[2:], pairs, strict=True):
            assert parse_cell(cell) == pytest.approx(expected_cell(nats, first, second), abs=0.06)
    assert (results / "effects.svg").is_file()


def test_page_has_the_changes_of_alibi_beyond_its_length(results):
    path = write_title_page(results, ComparedModels("wikipedia", 128))
    _, *rows = table_after(path.read_text(), "## ALiBi beyond its training length")
    nats = read_nats(results / "12M")
    expected = [
        (("alibi", 128, length, length, ""), ("alibi", 128, 128, 128, ""))
        for length in (256, 512, 2048)
    ]
    expected += [
        (("alibi", 128, length, 16, ""), ("alibi", 128, 128, 16, "")) for length in (256, 512)
    ]
    expected += [
        (("alibi", 128, length, length, "limited"), ("alibi", 128, length, length, ""))
        for length in (256, 512)
    ]
    assert [row[0] for row in rows] == ["E1"] * 3 + ["E4"] * 2 + ["E5"] * 2
    for row, (first, second) in zip(rows, expected, strict=True):
        assert parse_cell(row[3]) == pytest.approx(expected_cell(nats, first, second), abs=0.06)


def test_page_of_unfinished_models_says_what_is_missing(tmp_path):
    models = ComparedModels("wikipedia", 128)
    page = write_title_page(tmp_path, models).read_text()
    assert "**There is no outcome yet**" in page
    assert "- 49M: ALiBi, L = 128 (0 of 3 seeds); ALiBi, L = 512 (0 of 3 seeds)" in page
    copy_budget(tmp_path / "3M", seeds=(1,))
    page = write_title_page(tmp_path, models).read_text()
    assert "**There is no outcome yet**" in page
    assert "- 3M: ALiBi, L = 128 (1 of 3 seeds)" in page
    copy_budget(tmp_path / "3M", seeds=(2, 3))
    page = write_title_page(tmp_path, models).read_text()
    text = " ".join(page.split())
    assert text.count("**Not settled yet: after 3.1M training tokens per model, the baseline") == 1
    assert "A larger budget is incomplete;" in text


def test_command_writes_one_page_for_all_budgets(tmp_path):
    assert main([str(ROOT / "studies/title/3M.yaml"), "--results", str(tmp_path)]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["README.md"]
