"""Section of a page on the six tests: outcomes, conditions, and what is missing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from alibi_fairseq.reporting import markdown

from ..analysis.baseline import LARGEST_LEAD, SMALLEST_SHARE, recovered_gain
from ..analysis.compared_models import ComparedLosses
from ..analysis.estimates import percent
from ..analysis.six_tests import BASELINE_NOT_TRAINED, SEEDS, Condition, HypothesisTest, run_tests
from .changes import change_cells, seeds_cell
from .templates import section
from .wording import percentage


def six_tests_section(losses: ComparedLosses) -> str:
    """Return the outcomes and conditions of the tests, and how well E6's baseline is trained."""
    models = losses.models
    tests = run_tests(losses)
    recovered = recovered_gain(losses) if models.baseline == "share" else None
    return section(
        "six_tests",
        tests=_tests_table(tests),
        is_e6_run=not any(test.missing for test in tests if test.name == "E6"),
        lead_rule=models.baseline == "lead",
        largest_lead=LARGEST_LEAD,
        smallest_share=f"{SMALLEST_SHARE:.0%}",
        recovered="" if recovered is None else percentage(recovered),
        seeds=SEEDS,
        missing=_missing_models(tests),
        conditions=_conditions_table(tests),
    )


def _missing_models(tests: Iterable[HypothesisTest]) -> str:
    """Return a list of the tests that lack models, with the models without all seeds."""
    lines = [f"- {test.name}: {'; '.join(test.missing)}" for test in tests if test.missing]
    return "\n".join(lines)


def _tests_table(tests: Sequence[HypothesisTest]) -> str:
    """Write the statement, outcome, and p value of each test."""
    headers = ["test", "statement", "outcome", "p (Holm)"]
    rows = [[test.title, test.statement, test.verdict, _p_value(test)] for test in tests]
    return markdown.table(headers, rows, left=3)


def _conditions_table(tests: Sequence[HypothesisTest]) -> str:
    """Write the estimated change of each condition of each test, as far as it is known."""
    headers = ["", "condition", "range", "change", "95% interval", "location", "seeds"]
    rows = []
    for test in tests:
        for condition in test.conditions:
            if condition.estimate is not None:
                row = [test.name, condition.description, _range(condition)]
                row += change_cells(condition.estimate)
                rows.append([*row, location_cell(test, condition), seeds_cell(condition.estimate)])
    return markdown.table(headers, rows, left=2)


def location_cell(test: HypothesisTest, condition: Condition) -> str:
    """Return where a condition's interval lies; a dash without one, or with an untrained baseline.

    Next to an untrained baseline, the word "inside" would read as if the test was passed.
    """
    if condition.estimate is None or not test.baseline_trained:
        return markdown.NOTHING
    return test.location(condition)


def _p_value(test: HypothesisTest) -> str:
    """Return the p value of a test; a dash without one, or with an untrained baseline."""
    p = test.adjusted_p
    if p is None or test.outcome == BASELINE_NOT_TRAINED:
        return markdown.NOTHING
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def _range(condition: Condition) -> str:
    """Return the range of a claimed change."""
    low = condition.low
    high = condition.high
    if low is None:
        return f"below {percent(high)}" if high else "below 0%"
    if high is None:
        return f"above {percent(low)}"
    return f"{percent(low)} … {percent(high)}"
