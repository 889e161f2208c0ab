"""The page of the title test, written from the finished models of all budgets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from alibi_fairseq.positions.display_names import method_name
from alibi_fairseq.reporting import markdown
from alibi_fairseq.reporting.page import fill_file

from ..analysis.baseline import LARGEST_LEAD
from ..analysis.compared_models import SLIDING, ComparedModels
from ..analysis.cost_and_lead import table5_pair
from ..analysis.estimates import percent
from ..analysis.published_gaps import published_gap_range
from ..analysis.six_tests import DECLARED
from ..config import StudyFile
from ..sections.changes import change_as_verb, change_in_words, interval_in_words, size_in_words
from ..sections.cost_and_lead import (
    SAME_IN_A_TABLE,
    EffectsRow,
    cost_and_lead_table,
    effect_cell,
    pairs_table,
)
from ..sections.perplexity_by_length import perplexity_cell
from ..sections.templates import join_parts, section, write_page
from ..sections.training import divergence_sentence, origins_table, trials_table
from ..sections.wording import millions
from .figure import draw_effects
from .outcome import (
    CONTRADICTED,
    FALLS,
    INCONCLUSIVE,
    KINDS,
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
    RISES: "ALiBi's advantage shrinks with training:",
    FALLS: "ALiBi's advantage grows with training:",
    UNKNOWN: "Whether ALiBi's advantage grows or shrinks with training is unknown:",
}
#: Whether the lead falls from the next smaller complete budget.
LEAD_FALLS = {
    None: "There is no smaller complete budget, so this is not shown.",
    True: "This holds.",
    False: "This doesn't hold.",
}


def write_study_page(file: StudyFile) -> Path:
    """Write the page that all budgets share, and return its path."""
    assert file.config.tests is not None, "each budget names its tests"
    return write_title_page(file.all_results, file.config.tests)


def write_title_page(folder: Path, models: ComparedModels) -> Path:
    """Write the page and its figure from the JSON of all budgets, and return its path.

    Args:
        folder: holds the results of each budget.
        models: text and training length L.
    """
    budgets = load_budgets(folder, models)
    outcome = title_outcome(budgets)
    missing = []
    for budget in budgets:
        if budget.missing:
            missing.append(f"- {budget.name}: {'; '.join(budget.missing)}")
    pairs = [table5_pair(length, 4 * length) for length in PAPER_LENGTHS]
    return write_page(
        folder,
        PAGE,
        summary=title_summary(outcome, budgets),
        missing="\n".join(missing),
        notation=section("notation"),
        short=models.train_length,
        long=4 * models.train_length,
        outcome="" if outcome is None else _outcome(folder, outcome),
        perplexity=_perplexity_table(budgets),
        pairs=pairs_table([pair for pair in pairs if pair is not None], left_out=SAME_IN_A_TABLE),
        diverged=join_parts(*(divergence_sentence(budget.study.diverged) for budget in budgets)),
        budgets=join_parts(*(_budget(budget) for budget in budgets)),
    )


def title_summary(outcome: TitleOutcome | None, budgets: Sequence[Budget]) -> str:
    """Return the outcome in one paragraph, with what the protocol lets the page say about it.

    Args:
        outcome: the outcome; None while no budget is complete.
        budgets: all budgets.
    """
    if outcome is None:
        return NO_OUTCOME
    cost, lead, _ = outcome.effects
    _, highest = published_gap_range()
    return fill_file(
        SUMMARY,
        {
            **outcome_slots(outcome, budgets),
            "cost": change_in_words(cost.value),
            "cost_interval": interval_in_words(cost),
            "lead": change_in_words(lead.value),
            "lead_interval": interval_in_words(lead),
            "is_beyond_published": not outcome.lead_is_published,
            "highest": size_in_words(highest),
        },
    )


def outcome_slots(outcome: TitleOutcome, budgets: Sequence[Budget]) -> dict[str, object]:
    """Return the outcome, the comparison that decides it, and whether it can still change."""
    models = outcome.budget.losses.models
    short_vs_long = outcome.effects.short_vs_long
    return {
        "tokens": millions(outcome.budget.tokens),
        "short": models.train_length,
        "long": 4 * models.train_length,
        "short_vs_long": change_in_words(short_vs_long.value),
        "short_vs_long_interval": interval_in_words(short_vs_long),
        "is_open": outcome.outcome not in (SUPPORTED, CONTRADICTED),
        "is_undertrained": not outcome.baseline_is_trained,
        "is_supported": outcome.outcome == SUPPORTED,
        "is_contradicted": outcome.outcome == CONTRADICTED,
        "is_inconclusive": outcome.outcome == INCONCLUSIVE,
        "is_provisional": any(budget.missing for budget in budgets),
        "is_shrinking": outcome.outcome == SUPPORTED and outcome.direction == RISES,
        "crossing": "" if outcome.crossing is None else millions(outcome.crossing),
    }


def _outcome(folder: Path, outcome: TitleOutcome) -> str:
    """Return whether the baseline is trained, the three effects, and draw their figure."""
    models = outcome.budget.losses.models
    complete = outcome.complete
    rows = []
    for stride, windows in (("", "no overlap"), (SLIDING, f"S = {models.sliding_stride}")):
        for budget in complete:
            rows.append(EffectsRow([millions(budget.tokens), windows], budget.effects(stride)))
    tokens = [budget.tokens for budget in complete]
    effects = [budget.effects() for budget in complete]
    draw_effects(models.train_length, tokens, effects, folder / f"{FIGURE}.svg")
    steps = []
    for before, after, step in zip(complete, complete[1:], outcome.steps):
        steps.append(
            f"from {millions(before.tokens)} to {millions(after.tokens)} tokens, the ratio of its "
            f"perplexity to the sinusoidal one {change_as_verb(step.value)} "
            f"({interval_in_words(step)})"
        )
    lowest, highest = published_gap_range()
    _, high = outcome.effects.lead.interval()
    return fill_file(
        OUTCOME,
        {
            "largest_lead": f"{LARGEST_LEAD:.1f}",
            "lowest": percent(lowest),
            "highest": percent(highest),
            "high": percent(high),
            "is_published": outcome.lead_is_published,
            "second": LEAD_FALLS[outcome.lead_falls],
            "verdict": outcome.verdict,
            "cost_and_lead": section("cost_and_lead"),
            "effects": cost_and_lead_table(["tokens", "windows"], rows),
            "stride": models.sliding_stride,
            "direction": DIRECTIONS[outcome.direction],
            "steps": "; ".join(steps),
            "short": models.train_length,
            "beyond": _beyond_table(complete),
        },
    )


def _beyond_table(complete: Sequence[Budget]) -> str:
    """Write the changes of E1, E4, and E5 of ALiBi trained at L, by complete budget."""
    stride = complete[0].losses.models.sliding_stride
    rows = []
    for declared in DECLARED:
        for condition in declared["conditions"] if declared["name"] in ("E1", "E4", "E5") else ():
            description = condition["description"].format(stride=stride)
            row = [declared["name"], description.removeprefix("ALiBi ")]
            for budget in complete:
                estimate = budget.losses.change(condition["first"], condition["second"])
                row.append(effect_cell(estimate))
            rows.append(row)
    headers = ["", "ALiBi", *(millions(budget.tokens) for budget in complete)]
    return markdown.table(headers, rows, left=2)


def _perplexity_table(budgets: Sequence[Budget]) -> str:
    """Write the perplexity of each kind of model at 4 L by budget, also of incomplete ones.

    The number of seeds is in parentheses. It is empty without any model.
    """
    started = [budget for budget in budgets if budget.study.models]
    if not started:
        return ""
    rows = []
    for kind in KINDS:
        key = started[0].losses.models.key(kind)
        row = [f"{method_name(key.method)}, L = {key.train_length}"]
        for budget in started:
            losses = budget.losses.find(kind)
            seeds = "" if losses is None else f" ({len(losses.seeds)})"
            row.append(f"{perplexity_cell(losses)}{seeds}")
        rows.append(row)
    return markdown.table(["", *(millions(budget.tokens) for budget in started)], rows)


def _budget(budget: Budget) -> str:
    """Return learning rates and origin of the models of a budget."""
    slots = {
        "trials": trials_table(budget.study.trials),
        "origins": origins_table(budget.study.models),
    }
    return fill_file(BUDGET, {**slots, "name": budget.name, "has_models": any(slots.values())})
