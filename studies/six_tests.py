"""Section of a page on the six tests: outcomes, conditions, and what is missing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from alibi_fairseq.reporting import markdown
from alibi_fairseq.reporting.table import Column, Table

from .estimates import percent
from .losses import Losses
from .pages import section
from .primary_tests import (
    BASELINE_NOT_TRAINED,
    LARGEST_LEAD,
    SEEDS,
    SMALLEST_SHARE,
    Condition,
    PrimaryTest,
    StudiedModels,
    recovered_gain,
    run_tests,
)
from .tables import change_cell, interval_cell, seeds_cell


def tests_section(losses: Losses, models: StudiedModels) -> str:
    """Return the outcomes and conditions of the tests, and how well E6's baseline is trained."""
    tests = run_tests(losses, models)
    recovered = None
    if models.baseline == "share":
        recovered = recovered_gain(losses, models)
    return section(
        "six-tests",
        tests=_tests_table(tests),
        lead_rule=models.baseline == "lead",
        largest_lead=LARGEST_LEAD,
        smallest_share=f"{SMALLEST_SHARE:.0%}",
        seeds=SEEDS,
        missing=_missing_models(tests),
        conditions=_conditions_table(tests),
        recovered="" if recovered is None else recovered_percentage(recovered),
        long=4 * models.train_length,
    )


def recovered_percentage(recovered: float) -> str:
    """Return the recovered fraction of a gain in percent, or ``none`` for a loss."""
    return f"{100 * recovered:.0f}%" if recovered > 0 else "none"


def outcomes_list(tests: Iterable[PrimaryTest]) -> str:
    """Return the outcome of each test, with a link to their table."""
    lines = ["The [six tests](#the-six-tests) and their outcomes (L is the training length):\n"]
    lines += [f"- **{test.title}:** {test.verdict}" for test in tests]
    return "\n".join(lines)


def _tests_table(tests: Sequence[PrimaryTest]) -> str:
    """Write the statement, p value, and outcome of each test."""
    columns = [
        Column[PrimaryTest]("test", lambda test: test.title),
        Column[PrimaryTest]("statement", lambda test: test.statement),
        Column[PrimaryTest]("p (Holm)", _p_value),
        Column[PrimaryTest]("outcome", lambda test: test.verdict),
    ]
    return markdown.to_markdown([Table(columns, tests, left=2)])


def _missing_models(tests: Sequence[PrimaryTest]) -> str:
    """Return the models that each test still needs as a list; empty without any."""
    lines = [f"- {test.title}: {'; '.join(test.missing)}" for test in tests if test.missing]
    return "\n".join(lines)


class _ConditionRow(NamedTuple):
    """Condition of a test."""

    test: PrimaryTest
    condition: Condition


def _conditions_table(tests: Sequence[PrimaryTest]) -> str:
    """Write the estimated change of each condition of each test, as far as it is known."""
    rows = []
    for test in tests:
        for condition in test.conditions:
            if condition.estimate is not None:
                rows.append(_ConditionRow(test, condition))
    columns = [
        Column[_ConditionRow]("", lambda row: row.test.name),
        Column[_ConditionRow]("condition", lambda row: row.condition.description),
        Column[_ConditionRow]("range", lambda row: _range(row.condition.low, row.condition.high)),
        Column[_ConditionRow]("change", lambda row: change_cell(row.condition.estimate)),
        Column[_ConditionRow]("95% interval", lambda row: interval_cell(row.condition.estimate)),
        Column[_ConditionRow]("location", lambda row: location_cell(row.test, row.condition)),
        Column[_ConditionRow]("seeds", lambda row: seeds_cell(row.condition.estimate)),
    ]
    return markdown.to_markdown([Table(columns, rows, left=2)])


def location_cell(test: PrimaryTest, condition: Condition) -> str:
    """Return where a condition's interval lies; a dash without one, or with an untrained baseline.

    Next to an untrained baseline, the word "inside" would read as if the test was passed.
    """
    if condition.estimate is None or not test.baseline_trained:
        return markdown.NOTHING
    return test.location(condition)


def _p_value(test: PrimaryTest) -> str:
    """Return the p value of a test; a dash without one, or with an untrained baseline."""
    p = test.adjusted_p
    if p is None or test.outcome == BASELINE_NOT_TRAINED:
        return markdown.NOTHING
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def _range(low: float | None, high: float | None) -> str:
    if low is None:
        return f"below {percent(high)}" if high else "below 0%"
    if high is None:
        return f"above {percent(low)}"
    return f"{percent(low)} … {percent(high)}"
