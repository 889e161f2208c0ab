"""The page of the title test, written from the finished models of all budgets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from alibi_fairseq.positions.spec import method_name
from alibi_fairseq.reporting import markdown

from ..cost_and_lead import HELP, cost_and_lead_table, with_interval
from ..estimates import estimate_change, percent
from ..losses import EvaluationKey, diverged_models, load_provenance, load_tuning
from ..paper_claim import pairs_table, paper_pairs
from ..primary_tests import LARGEST_LEAD, StudiedModels
from ..published_gaps import published_gap_range
from ..tables import NOTATION, divergence_section, origins_table, trials_table, wrap, write_page
from .figure import draw_effects
from .outcome import (
    CONTRADICTED,
    FALLS,
    RISES,
    SUPPORTED,
    UNKNOWN,
    Budget,
    TitleOutcome,
    load_budgets,
    title_outcome,
)

FIGURE = "effects"
#: Training lengths of the paper that are shown, the nearest ones to those of this test.
PAPER_LENGTHS = (64, 128)

INTRODUCTION = """\
The claim of the paper's title is that a model trained short with ALiBi beats a model trained long
with sinusoidal embeddings. This test asks whether it holds for small models whose baseline has
learned its positions, and how the answer moves with training. The
[protocol](../../studies/title/protocol.md) fixed models, statistics, and outcomes before the first
model was trained. This command repeats the first budget on two cores, and writes this page:

```bash
python -m studies studies/title/3M.yaml --corpus books=books.tar.xz --parallel 2 \\
    --results results/title
```

Without `--corpus`, it only writes the page of the finished models."""

NO_OUTCOME = """\
**There is no outcome yet**, because no budget has all of its models."""

OUTCOME = """\
**Outcome at {tokens} tokens, the largest complete budget: {verdict}.** From sinusoidal embeddings
trained at {long} tokens to ALiBi trained at {short}, perplexity at {long} tokens changes by {e6}.
The cost of training short is {cost}, and the lead at equal length is {lead}."""

PROVISIONAL = """\
This is not the final outcome, because larger budgets are missing."""

AGREES = """\
This agrees with the paper's own rows for L = 64 and 128, in which E6 is above zero as well."""

SHRINKS = """\
The claim holds at this budget, and its margin shrinks with training."""

SAYS_NOTHING = """\
The outcome therefore says nothing about the paper."""

CROSSING = """\
The line through E6 at the two largest complete budgets crosses zero at {tokens} tokens."""

RULE = """\
The baseline counts as trained if both hold at this budget:

1. The 95% interval of the lead ends at +{largest:.1f}% or below, the largest published lead in
   windows without overlap (published leads: {lowest} to {highest}). It ends at {high}: **{first}**.
2. The lead is smaller than at the next smaller budget. **{second}**"""

SLIDING = """\
With S = {stride}, a window scores only its last {stride} tokens, so all tokens have nearly the
whole window as context. These rows have no outcome. Vertical bars in the figure are the 95%
intervals of the rows without overlap."""

DIRECTIONS = {
    RISES: "E6 rises with training.",
    FALLS: "E6 falls with training.",
    UNKNOWN: "Whether E6 rises or falls with training is unknown.",
}

STEP = """\
From {before} to {after} tokens, the ratio of the two perplexities of E6 changes by {change}."""

BEYOND = """\
These are the changes of E1, E4, and E5 of the
[small models](../small_models/README.md#changes-of-perplexity-in-the-tests), for ALiBi trained at
L = {short}. They are estimates without an outcome."""

PAPER = """\
The paper's models at the shortest lengths (Table 5, WikiText-103, 247M parameters, windows without
overlap). The paper has none at L = 32:"""


def write_title_page(folder: Path, models: StudiedModels) -> Path:
    """Write the page and its figure from the JSON of all budgets, and return its path.

    Args:
        folder: holds the results of each budget.
        models: text and training length L.
    """
    budgets = load_budgets(folder, models)
    outcome = title_outcome(budgets)
    sections = ["# Title test: trained short against trained long", INTRODUCTION]
    sections += title_summary(outcome, budgets)
    sections += _missing_section(budgets)
    sections += ["## How to read the tables", NOTATION, HELP]
    sections.append(f"L is {models.train_length}, and 4 L is {4 * models.train_length}.")
    if outcome is not None:
        sections += ["## The baseline", _rule(outcome)]
        sections += _effects_sections(folder, budgets, outcome)
        sections += _beyond_sections(budgets)
    sections += ["## Perplexity", *_perplexity_sections(budgets)]
    pairs = []
    for pair in paper_pairs():
        is_near = pair.short in PAPER_LENGTHS and pair.long == 4 * pair.short
        if pair.tables == ("table05",) and is_near:
            pairs.append(pair)
    sections += ["## The paper's numbers", PAPER, pairs_table(pairs)]
    for budget in budgets:
        sections += _provenance_sections(budget)
    return write_page(folder, sections)


def title_summary(outcome: TitleOutcome | None, budgets: Sequence[Budget]) -> list[str]:
    """Return the outcome in one paragraph, with what the protocol lets the page say about it.

    Args:
        outcome: the outcome; None while no budget is complete.
        budgets: all budgets.
    """
    if outcome is None:
        return [NO_OUTCOME]
    models = outcome.budget.models
    sentences = [
        OUTCOME.format(
            tokens=_tokens(outcome.budget.tokens),
            verdict=outcome.verdict,
            short=models.train_length,
            long=4 * models.train_length,
            e6=with_interval(outcome.effects.e6),
            cost=with_interval(outcome.effects.cost),
            lead=with_interval(outcome.effects.lead),
        )
    ]
    if not outcome.baseline_is_trained:
        sentences.append(SAYS_NOTHING)
    if outcome.outcome == CONTRADICTED:
        sentences.append(AGREES)
    if outcome.outcome == SUPPORTED and outcome.direction == RISES:
        sentences.append(SHRINKS)
    if outcome.crossing is not None:
        sentences.append(CROSSING.format(tokens=_tokens(outcome.crossing)))
    if not all(budget.is_complete for budget in budgets):
        sentences.append(PROVISIONAL)
    return [wrap(" ".join(sentences))]


def _tokens(count: float | None) -> str:
    """Return a number of training tokens in millions."""
    assert count is not None, "the budget has models"
    return f"{count / 1e6:.1f}M"


def _missing_section(budgets: Sequence[Budget]) -> list[str]:
    """Return the models that each budget lacks; empty if all are finished."""
    lines = []
    for budget in budgets:
        if budget.missing:
            lines.append(f"- {budget.name}: {'; '.join(budget.missing)}")
    if not lines:
        return []
    text = "A budget without all seeds of its three kinds of models has no outcome. Missing are:"
    return [text, "\n".join(lines)]


def _rule(outcome: TitleOutcome) -> str:
    """Return both conditions of a trained baseline, and whether they hold."""
    lowest, highest = published_gap_range()
    _, high = outcome.effects.lead.interval()
    second = "There is no smaller complete budget, so this is not shown."
    if outcome.lead_falls is not None:
        second = "This holds." if outcome.lead_falls else "This does not hold."
    return RULE.format(
        largest=LARGEST_LEAD,
        lowest=percent(lowest),
        highest=percent(highest),
        high=percent(high),
        first="this holds" if outcome.lead_is_published else "this does not hold",
        second=second,
    )


def _effects_sections(folder: Path, budgets: Sequence[Budget], outcome: TitleOutcome) -> list[str]:
    """Return the table of cost, lead, and E6, and the direction of E6, and draw the figure."""
    complete = [budget for budget in budgets if budget.is_complete]
    stride = outcome.budget.models.train_length // 8
    rows = []
    for shown_stride, windows in ((None, "no overlap"), (stride, f"S = {stride}")):
        for budget in complete:
            rows.append(([_tokens(budget.tokens), windows], budget.effects(shown_stride)))
    effects = [budget.effects() for budget in complete]
    tokens = [budget.tokens or 0.0 for budget in complete]
    draw_effects(tokens, effects, folder / f"{FIGURE}.svg")
    sections = ["## Cost, lead, and E6", cost_and_lead_table(["tokens", "windows"], rows)]
    sections.append(wrap(SLIDING.format(stride=stride)))
    sections.append(f"![Cost, lead, and E6 by training tokens]({FIGURE}.svg)")
    if outcome.steps:
        sections.append(_direction_sentence(complete, outcome))
    return sections


def _direction_sentence(complete: Sequence[Budget], outcome: TitleOutcome) -> str:
    """Return whether E6 rises or falls with training, with its change at each step."""
    sentences = [DIRECTIONS[outcome.direction]]
    for before, after, step in zip(complete, complete[1:], outcome.steps):
        sentences.append(
            STEP.format(
                before=_tokens(before.tokens),
                after=_tokens(after.tokens),
                change=with_interval(step),
            )
        )
    return wrap(" ".join(sentences))


def _beyond_sections(budgets: Sequence[Budget]) -> list[str]:
    """Return the changes of E1, E4, and E5 of ALiBi trained at L, by complete budget."""
    complete = [budget for budget in budgets if budget.is_complete]
    models = complete[0].models
    stride = models.train_length // 8
    comparisons = []
    for multiple in (2, 4, 16):
        longer = models.key("alibi", multiple)
        comparisons.append(("E1", f"at {multiple} L vs. L", longer, models.key("alibi")))
    for multiple in (2, 4):
        longer = models.key("alibi", multiple, stride)
        short = models.key("alibi", 1, stride)
        comparisons.append(("E4", f"at {multiple} L vs. L, S = {stride}", longer, short))
    for multiple in (2, 4):
        limited = models.key("alibi", multiple, variant="limited")
        unlimited = models.key("alibi", multiple)
        name = f"at {multiple} L: attention limited to L vs. unlimited"
        comparisons.append(("E5", name, limited, unlimited))
    rows = []
    for test, name, first, second in comparisons:
        row = [test, name]
        for budget in complete:
            row.append(_change_cell(budget, first, second))
        rows.append(row)
    headers = ["", "ALiBi", *(_tokens(budget.tokens) for budget in complete)]
    table = markdown.table(headers, rows, left=2)
    return ["## ALiBi beyond its training length", BEYOND.format(short=models.train_length), table]


def _change_cell(budget: Budget, first: EvaluationKey, second: EvaluationKey) -> str:
    """Return the change from the second to the first evaluation; a dash if one is missing."""
    if first not in budget.losses or second not in budget.losses:
        return markdown.NOTHING
    estimate = estimate_change(budget.losses[first], budget.losses[second])
    return markdown.NOTHING if estimate is None else with_interval(estimate)


def _perplexity_sections(budgets: Sequence[Budget]) -> list[str]:
    """Return the perplexity of each kind of model at 4 L, by budget, also of incomplete ones."""
    started = [budget for budget in budgets if budget.losses]
    if not started:
        return ["No model is finished yet."]
    rows = []
    for index, key in enumerate(started[0].keys):
        row = [f"{method_name(key.method)}, L = {key.train_length}"]
        for budget in started:
            losses = budget.losses.get(budget.keys[index])
            cell = markdown.NOTHING
            if losses is not None:
                seeds = len(losses.seeds)
                cell = f"{markdown.perplexity(losses.perplexity)} ({seeds})"
            row.append(cell)
        rows.append(row)
    long = 4 * started[0].models.train_length
    text = f"At {long} tokens, in windows without overlap, with the number of seeds:"
    headers = ["", *(_tokens(budget.tokens) for budget in started)]
    return [text, markdown.table(headers, rows)]


def _provenance_sections(budget: Budget) -> list[str]:
    """Return diverged models, learning rates, and origin of the models of a budget."""
    sections = divergence_section(diverged_models(budget.folder))
    tuning = load_tuning(budget.folder)
    if tuning:
        sections += [f"Learning-rate trials of {budget.name}:", trials_table(tuning)]
    provenance = load_provenance(budget.folder)
    if provenance:
        sections += [f"Origin of the models of {budget.name}:", origins_table(provenance)]
    if not sections:
        return []
    return [f"## Models of {budget.name}", *sections]
