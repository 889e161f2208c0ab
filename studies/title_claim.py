"""The claim of the paper's title: a model that is trained short, tested long.

ALiBi trained at L is compared with models trained at 4 L. All are evaluated at 4 L.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from alibi_fairseq.positions.display_names import METHOD_NAMES, method_name
from alibi_fairseq.reporting import markdown, plots
from alibi_fairseq.reporting.line_styles import method_style
from alibi_fairseq.reporting.markdown import NOTHING
from alibi_fairseq.reporting.plots import Panel
from alibi_fairseq.reporting.table import Column, Table
from alibi_fairseq.reporting.training_costs import (
    CostRow,
    TrainingCost,
    cost_columns,
    cost_rows,
    read_training_cost,
)

from .cost_and_lead import (
    EffectsRow,
    claim_keys,
    cost_and_lead_table,
    estimate_cost_and_lead,
)
from .estimates import Estimate, estimate_change, percent, percent_to_nats
from .losses import EvaluationKey, Losses, TrainedModel
from .pages import section
from .paper_claim import (
    paper_claim_section,
    table5_pair,
    trained_long_panel,
)
from .primary_tests import LARGEST_LEAD, StudiedModels, recovered_gain, run_tests
from .prose import change_in_words, interval_in_words
from .published_gaps import published_gap_range
from .ranking import gaps_to_alibi
from .six_tests import recovered_percentage
from .study_results import StudyResults, ValidationCurves
from .tables import at_train_length, change_cell, interval_cell, model_line

FIGURE = "title-claim"


def claim_summary(losses: Losses, models: StudiedModels) -> str:
    """Return lead and cost for the top of a page; empty while models are missing."""
    effects = estimate_cost_and_lead(losses, claim_keys(models))
    if effects is None:
        return ""
    lowest, highest = published_gap_range()
    _, high = effects.lead.interval()
    return section(
        "title-claim-summary",
        short=f"{models.train_length:,}",
        long=f"{4 * models.train_length:,}",
        lead=change_in_words(effects.lead.value),
        lead_interval=interval_in_words(effects.lead),
        lowest=percent(lowest),
        highest=percent(highest),
        is_trained=high <= percent_to_nats(LARGEST_LEAD),
        cost=change_in_words(effects.cost.value),
        cost_interval=interval_in_words(effects.cost),
        in_paper=_paper_cost(models),
    )


def _paper_cost(models: StudiedModels) -> str:
    """Return the cost at the lengths of a study in the paper's Table 5; empty if it lacks them."""
    pair = table5_pair(models.train_length, 4 * models.train_length)
    return "" if pair is None or pair.cost is None else change_in_words(pair.cost)


def title_claim_section(study: StudyResults, models: StudiedModels) -> str:
    """Return the table, and draw the figure, of the title's claim.

    Args:
        study: results of the study. The figure is written into its folder.
        models: models of the six tests.

    Returns:
        Nothing while ALiBi trained at L, or any model trained at 4 L, is missing.
    """
    losses = study.losses
    trained_long = _trained_long(losses, models)
    if models.key("alibi", 4) not in losses or not trained_long:
        return ""
    short = models.train_length
    costs = {row.model: row for row in cost_rows(load_training_costs(study))}
    rows = [models.key("alibi", 4), *trained_long]
    panels = [_panel(losses, models), trained_long_panel(short)]
    plots.draw("", panels, study.folder / f"{FIGURE}.svg")
    *_, test = run_tests(losses, models)
    has_share_rule = models.baseline == "share"
    recovered = recovered_gain(losses, models) if has_share_rule else None
    return section(
        "title-claim",
        short=f"{short:,}",
        long=f"{4 * short:,}",
        models=_claim_table(losses, rows, costs),
        verdict=test.verdict,
        lead_rule=not has_share_rule,
        largest_lead=LARGEST_LEAD,
        recovered="" if recovered is None else recovered_percentage(recovered),
        cost_and_lead=section("cost-and-lead"),
        effects=_effects_table(losses, models),
        paper_cost=_paper_cost(models),
        is_cost_smaller=_is_cost_smaller(losses, models),
        gaps=training_gaps(study.curves, models),
        comparable_costs=costs_are_comparable(rows, costs),
        paper=paper_claim_section(),
    )


def _effects_table(losses: Losses, models: StudiedModels) -> str:
    """Write cost, lead, and E6; empty while models are missing."""
    stride = models.train_length // 8
    rows = []
    for shown_stride, windows in ((None, "no overlap"), (stride, f"S = {stride}")):
        effects = estimate_cost_and_lead(losses, claim_keys(models, shown_stride))
        if effects is not None:
            rows.append(EffectsRow([windows], effects))
    return cost_and_lead_table(["windows"], rows) if rows else ""


def _is_cost_smaller(losses: Losses, models: StudiedModels) -> bool:
    """Return True if the interval of the cost lies below the paper's cost."""
    effects = estimate_cost_and_lead(losses, claim_keys(models))
    pair = table5_pair(models.train_length, 4 * models.train_length)
    if effects is None or pair is None or pair.cost is None:
        return False
    _, high = effects.cost.interval()
    return high < pair.cost


def training_gaps(curves: ValidationCurves, models: StudiedModels) -> str:
    """Write how far the models trained at 4 L are behind ALiBi during training.

    The rows are the validations nearest to tenths of the training.

    Args:
        curves: losses on the split ``valid`` during training.
        models: models of the six tests.

    Returns:
        Nothing without ALiBi and sinusoidal embeddings trained at 4 L.
    """
    long = 4 * models.train_length
    gaps = gaps_to_alibi(curves, models.corpus, long)
    sinusoidal = gaps.get("sinusoidal", {})
    none = gaps.get("none", {})
    alibi = curves.get(TrainedModel(models.corpus, "alibi", long), {})
    rows = [updates for updates in _tenths(alibi) if updates in sinusoidal]
    if not rows:
        return ""

    def share(updates: int) -> str:
        """Return the share of ALiBi's gain over no positions; a dash without a gain."""
        gain = none.get(updates, 0.0)
        return recovered_percentage(1 - sinusoidal[updates] / gain) if gain > 0 else NOTHING

    columns = [
        Column[int]("updates", lambda updates: f"{updates:,}"),
        Column[int]("tokens", lambda updates: f"{alibi[updates].tokens / 1e6:.1f}M"),
        Column[int]("sinusoidal vs. ALiBi", lambda updates: percent(sinusoidal[updates])),
        Column[int](
            "no positions vs. ALiBi",
            lambda updates: percent(none[updates]) if updates in none else NOTHING,
        ),
        Column[int]("share", share),
    ]
    return markdown.to_markdown([Table(columns, rows, left=0)])


def _tenths(validated: Iterable[int]) -> list[int]:
    """Return the numbers of updates nearest to tenths of the last one, in order."""
    validated = sorted(validated)
    nearest = set()
    for tenth in range(1, 11) if validated else ():
        target = tenth * validated[-1] / 10
        nearest.add(min(validated, key=lambda updates: abs(updates - target)))
    return sorted(nearest)


def _trained_long(losses: Losses, models: StudiedModels) -> list[EvaluationKey]:
    """Return the evaluations at 4 L of the models trained at 4 L, in the order of method names."""
    keys = []
    known = list(METHOD_NAMES)
    methods = {key.method for key in losses}
    for method in sorted(methods, key=lambda name: (name not in known, name)):
        key = models.key(method, 4, trained_multiple=4)
        if key in losses:
            keys.append(key)
    return keys


def load_training_costs(study: StudyResults) -> list[TrainingCost]:
    """Read the cost of each finished model of a study, in order of name."""
    costs = []
    for model in study.models:
        costs.append(read_training_cost(model.model.name, model.folder))
    return costs


def _claim_table(losses: Losses, rows: list[EvaluationKey], costs: Mapping[str, CostRow]) -> str:
    """Write perplexity at 4 L, and the cost of training, of ALiBi and the models trained long."""
    alibi = losses[rows[0]]

    def change(key: EvaluationKey) -> Estimate | None:
        """Return the change to ALiBi trained at L, for all other models."""
        return None if key == rows[0] else estimate_change(alibi, losses[key])

    columns = [
        Column[EvaluationKey]("", lambda key: method_name(key.method)),
        Column[EvaluationKey]("trained at", lambda key: str(key.train_length)),
        Column[EvaluationKey](
            f"perplexity at {rows[0].length}",
            lambda key: markdown.perplexity(losses[key].perplexity),
        ),
        Column[EvaluationKey]("ALiBi (L) vs. it", lambda key: change_cell(change(key))),
        Column[EvaluationKey]("95% interval", lambda key: interval_cell(change(key))),
    ]
    if costs_are_comparable(rows, costs):
        columns += cost_columns(lambda key: costs[key.model.name])
    columns.append(Column("seeds", lambda key: str(len(losses[key].seeds))))
    return markdown.to_markdown([Table(columns, rows)])


def costs_are_comparable(rows: Iterable[EvaluationKey], costs: Mapping[str, CostRow]) -> bool:
    """Return True if the models were trained one at a time, on one kind of processor."""
    processors: set[str] = set()
    for key in rows:
        cost = costs[key.model.name]
        if cost.runs_at_a_time is None or cost.runs_at_a_time >= 1.05:
            return False
        processors |= cost.processors
    return len(processors) == 1


def _panel(losses: Losses, models: StudiedModels) -> Panel:
    """Create the panel of ALiBi trained at L and the models trained at 4 L, at up to 4 L."""
    short = models.train_length
    long = 4 * short
    lines = []
    for train_length in (short, long):
        for method, by_length in at_train_length(losses, models.corpus, train_length).items():
            if train_length == short and method != "alibi":
                continue
            shown = {length: value for length, value in by_length.items() if length <= long}
            style = method_style(method_name(method), train_length, (short, long))
            label = f"{method_name(method)}, L = {train_length}"
            lines.append(model_line(label, shown, style))
    return Panel(f"This study ({models.corpus})", lines, trained_at=short, end_labels=True)
