"""The page of the title test, written from the finished models of all budgets."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from alibi_fairseq.positions.display_names import method_name
from alibi_fairseq.reporting import markdown
from alibi_fairseq.reporting.page import fill_file
from alibi_fairseq.reporting.table import Column, Table

from ..cost_and_lead import EffectsRow, cost_and_lead_table, with_interval
from ..estimates import change_between, percent
from ..losses import EvaluationKey
from ..origins import divergence_sentence, origins_table, trials_table
from ..pages import section, sections, write_page
from ..paper_claim import COSTS, SAME_IN_A_TABLE, pairs_table, paper_pairs
from ..primary_tests import (
    DECLARED,
    LARGEST_LEAD,
    Condition,
    StudiedModels,
    declared_conditions,
)
from ..prose import change_in_words, interval_in_words, size_in_words
from ..published_gaps import published_gap_range
from .figure import draw_effects
from .outcome import (
    CONTRADICTED,
    FALLS,
    INCONCLUSIVE,
    RISES,
    SUPPORTED,
    UNKNOWN,
    Budget,
    TitleOutcome,
    load_budgets,
    title_outcome,
)

FIGURE = "effects"
#: Templates of the page, its first paragraph, its sections with an outcome, and those of a budget.
PAGE = Path(__file__).with_name("page.md")
SUMMARY = PAGE.with_name("summary.md")
OUTCOME = PAGE.with_name("outcome.md")
BUDGET = PAGE.with_name("budget.md")
#: Summary while no budget is complete.
NO_OUTCOME = "**There is no outcome yet**, because no budget has all of its models."
#: Training lengths of the paper that are shown, the nearest ones to those of this test.
PAPER_LENGTHS = (64, 128)

DIRECTIONS = {
    RISES: "Short vs. long rises with training.",
    FALLS: "Short vs. long falls with training.",
    UNKNOWN: "Whether short vs. long rises or falls with training is unknown.",
}


def write_title_page(folder: Path, models: StudiedModels) -> Path:
    """Write the page and its figure from the JSON of all budgets, and return its path.

    Args:
        folder: holds the results of each budget.
        models: text and training length L.
    """
    budgets = load_budgets(folder, models)
    outcome = title_outcome(budgets)
    pairs = []
    for pair in paper_pairs():
        is_near = pair.short in PAPER_LENGTHS and pair.long == 4 * pair.short
        if pair.tables == ("table05",) and is_near:
            pairs.append(pair)
    return write_page(
        folder,
        PAGE,
        summary=title_summary(outcome, budgets),
        missing=_missing_models(budgets),
        notation=section("notation"),
        short=models.train_length,
        long=4 * models.train_length,
        outcome="" if outcome is None else _outcome(folder, budgets, outcome),
        perplexity=_perplexity_table(budgets),
        pairs=pairs_table(pairs, left_out=(*SAME_IN_A_TABLE, *COSTS)),
        diverged=sections(*(divergence_sentence(budget.study.diverged) for budget in budgets)),
        budgets=sections(*(_budget(budget) for budget in budgets)),
    )


def title_summary(outcome: TitleOutcome | None, budgets: Sequence[Budget]) -> str:
    """Return the outcome in one paragraph, with what the protocol lets the page say about it.

    Args:
        outcome: the outcome; None while no budget is complete.
        budgets: all budgets.
    """
    if outcome is None:
        return NO_OUTCOME
    models = outcome.budget.models
    cost, lead, short_vs_long = outcome.effects
    _, highest = published_gap_range()
    return fill_file(
        SUMMARY,
        {
            **outcome_slots(outcome, budgets),
            "short": models.train_length,
            "long": 4 * models.train_length,
            "short_vs_long": change_in_words(short_vs_long.value),
            "short_vs_long_interval": interval_in_words(short_vs_long),
            "cost": change_in_words(cost.value),
            "cost_interval": interval_in_words(cost),
            "lead": change_in_words(lead.value),
            "lead_interval": interval_in_words(lead),
            "is_beyond_published": not outcome.lead_is_published,
            "highest": size_in_words(highest),
            "is_shrinking": outcome.outcome == SUPPORTED and outcome.direction == RISES,
            "crossing": "" if outcome.crossing is None else _tokens(outcome.crossing),
        },
    )


def outcome_slots(outcome: TitleOutcome, budgets: Sequence[Budget]) -> dict[str, object]:
    """Return which outcome applies, after how many tokens, and whether it can still change."""
    return {
        "tokens": _tokens(outcome.budget.tokens),
        "is_open": outcome.outcome not in (SUPPORTED, CONTRADICTED),
        "is_undertrained": not outcome.baseline_is_trained,
        "is_supported": outcome.outcome == SUPPORTED,
        "is_contradicted": outcome.outcome == CONTRADICTED,
        "is_inconclusive": outcome.outcome == INCONCLUSIVE,
        "is_provisional": not all(budget.is_complete for budget in budgets),
    }


def _tokens(count: float | None) -> str:
    """Return a number of training tokens in millions."""
    assert count is not None, "the budget has models"
    return f"{count / 1e6:.1f}M"


def _missing_models(budgets: Sequence[Budget]) -> str:
    """Return the models that each budget lacks as a list; empty if all are finished."""
    lines = []
    for budget in budgets:
        if budget.missing:
            lines.append(f"- {budget.name}: {'; '.join(budget.missing)}")
    return "\n".join(lines)


def _outcome(folder: Path, budgets: Sequence[Budget], outcome: TitleOutcome) -> str:
    """Return whether the baseline is trained, the three effects, and draw their figure."""
    complete = [budget for budget in budgets if budget.is_complete]
    short = outcome.budget.models.train_length
    stride = short // 8
    rows = []
    for shown_stride, windows in ((None, "no overlap"), (stride, f"S = {stride}")):
        for budget in complete:
            row = EffectsRow([_tokens(budget.tokens), windows], budget.effects(shown_stride))
            rows.append(row)
    effects = [budget.effects() for budget in complete]
    tokens = [budget.tokens or 0.0 for budget in complete]
    draw_effects(short, tokens, effects, folder / f"{FIGURE}.svg")
    lowest, highest = published_gap_range()
    _, high = outcome.effects.lead.interval()
    second = "There is no smaller complete budget, so this is not shown."
    if outcome.lead_falls is not None:
        second = "This holds." if outcome.lead_falls else "This does not hold."
    return fill_file(
        OUTCOME,
        {
            "largest_lead": f"{LARGEST_LEAD:.1f}",
            "lowest": percent(lowest),
            "highest": percent(highest),
            "high": percent(high),
            "is_published": outcome.lead_is_published,
            "second": second,
            "verdict": outcome.verdict,
            "cost_and_lead": section("cost-and-lead"),
            "effects": cost_and_lead_table(["tokens", "windows"], rows),
            "stride": stride,
            "direction": DIRECTIONS[outcome.direction],
            "steps": _steps(complete, outcome),
            "short": short,
            "beyond": _beyond_table(complete),
        },
    )


def _steps(complete: Sequence[Budget], outcome: TitleOutcome) -> str:
    """Return the change of E6 from each complete budget to the next; empty without two budgets."""
    sentences = []
    for before, after, step in zip(complete, complete[1:], outcome.steps):
        sentences.append(
            f"After {_tokens(after.tokens)} tokens, the ratio of the two perplexities is "
            f"{change_in_words(step.value)} than after {_tokens(before.tokens)} "
            f"({interval_in_words(step)})."
        )
    return " ".join(sentences)


class _TestedChange(NamedTuple):
    """Change of ALiBi that a test of the small models has as a condition."""

    test: str
    condition: Condition


def _beyond_table(complete: Sequence[Budget]) -> str:
    """Write the changes of E1, E4, and E5 of ALiBi trained at L, by complete budget."""
    rows = []
    for declared in DECLARED:
        if declared["name"] in ("E1", "E4", "E5"):
            for condition in declared_conditions(declared, {}, complete[0].models):
                rows.append(_TestedChange(declared["name"], condition))
    columns = [
        Column[_TestedChange]("", lambda row: row.test),
        Column[_TestedChange](
            "ALiBi", lambda row: row.condition.description.removeprefix("ALiBi ")
        ),
    ]
    for budget in complete:
        columns.append(Column(_tokens(budget.tokens), partial(_change_cell, budget)))
    return markdown.to_markdown([Table(columns, rows, left=2)])


def _change_cell(budget: Budget, row: _TestedChange) -> str:
    """Return the change from the second to the first evaluation; a dash if one is missing."""
    estimate = change_between(budget.losses, *row.condition.evaluations)
    return markdown.NOTHING if estimate is None else with_interval(estimate)


def _perplexity_table(budgets: Sequence[Budget]) -> str:
    """Write the perplexity of each kind of model at 4 L by budget, also of incomplete ones.

    It is empty without any model.
    """
    started = [budget for budget in budgets if budget.losses]
    if not started:
        return ""
    columns = [
        Column[EvaluationKey]("", lambda key: f"{method_name(key.method)}, L = {key.train_length}")
    ]
    for budget in started:
        columns.append(Column(_tokens(budget.tokens), partial(_perplexity_cell, budget)))
    return markdown.to_markdown([Table(columns, started[0].keys)])


def _perplexity_cell(budget: Budget, key: EvaluationKey) -> str:
    """Return the perplexity of a kind of model, with the number of seeds; a dash without any."""
    losses = budget.losses.get(key)
    if losses is None:
        return markdown.NOTHING
    return f"{markdown.perplexity(losses.perplexity)} ({len(losses.seeds)})"


def _budget(budget: Budget) -> str:
    """Return learning rates and origin of the models of a budget."""
    trials = trials_table(budget.study.trials)
    origins = origins_table(budget.study.origins)
    slots = {
        "has_models": bool(trials or origins),
        "name": budget.name,
        "trials": trials,
        "origins": origins,
    }
    return fill_file(BUDGET, slots)
