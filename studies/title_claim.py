"""The claim of the paper's title: a model that is trained short, tested long.

ALiBi trained at L is compared with models trained at 4 L. All are evaluated at 4 L.
"""

from __future__ import annotations

from alibi_fairseq.positions.display_names import METHOD_NAMES, method_name
from alibi_fairseq.reporting import markdown, plots
from alibi_fairseq.reporting.line_styles import method_style
from alibi_fairseq.reporting.plots import Panel

from .cost_and_lead import EffectsRow, cost_and_lead_table, estimate_cost_and_lead, table5_pair
from .estimates import percent
from .pages import section
from .paper_claim import paper_claim_section, trained_long_panel
from .primary_tests import LARGEST_LEAD, is_published_lead, recovered_gain, run_tests
from .prose import change_in_words, interval_in_words
from .published_gaps import published_gap_range
from .ranking import gaps_during_training
from .studied import SLIDING, StudiedLosses
from .study_results import StudyResults
from .tables import (
    at_train_length,
    change_cells,
    model_line,
    percentage,
    perplexity_cell,
)

FIGURE = "title-claim"


def claim_summary(losses: StudiedLosses) -> str:
    """Return lead and cost for the top of a page; empty while models are missing."""
    effects = estimate_cost_and_lead(losses)
    if effects is None:
        return ""
    lowest, highest = published_gap_range()
    paper = _paper_cost(losses)
    return section(
        "title-claim-summary",
        short=f"{losses.models.train_length:,}",
        long=f"{4 * losses.models.train_length:,}",
        lead=change_in_words(effects.lead.value),
        lead_interval=interval_in_words(effects.lead),
        lowest=percent(lowest),
        highest=percent(highest),
        is_trained=is_published_lead(effects.lead),
        cost=change_in_words(effects.cost.value),
        cost_interval=interval_in_words(effects.cost),
        in_paper="" if paper is None else change_in_words(paper),
    )


def _paper_cost(losses: StudiedLosses) -> float | None:
    """Return the cost at the lengths of a study in the paper's Table 5; None if it lacks them."""
    length = losses.models.train_length
    pair = table5_pair(length, 4 * length)
    return None if pair is None else pair.cost


def title_claim_section(study: StudyResults, losses: StudiedLosses) -> str:
    """Return the table, and draw the figure, of the title's claim.

    Args:
        study: results of the study. The figure is written into its folder.
        losses: losses of the study.

    Returns:
        Nothing while ALiBi trained at L, or any model trained at 4 L, is missing.
    """
    short = losses.models.train_length
    trained_long = _methods_trained_long(losses)
    if losses.find("alibi-1@4") is None or not trained_long:
        return ""
    panels = [_panel(losses), trained_long_panel(short)]
    plots.draw("", panels, study.folder / f"{FIGURE}.svg")
    *_, test = run_tests(losses)
    has_share_rule = losses.models.baseline == "share"
    recovered = recovered_gain(losses) if has_share_rule else None
    paper_cost = _paper_cost(losses)
    effects = estimate_cost_and_lead(losses)
    is_cost_smaller = False
    if effects is not None and paper_cost is not None:
        is_cost_smaller = effects.cost.interval()[1] < paper_cost
    return section(
        "title-claim",
        short=f"{short:,}",
        long=f"{4 * short:,}",
        models=_claim_table(losses, trained_long),
        verdict=test.verdict,
        lead_rule=not has_share_rule,
        largest_lead=LARGEST_LEAD,
        recovered="" if recovered is None else percentage(recovered),
        cost_and_lead=section("cost-and-lead"),
        effects=_effects_table(losses),
        paper_cost="" if paper_cost is None else change_in_words(paper_cost),
        is_cost_smaller=is_cost_smaller,
        gaps=gaps_during_training(study, losses.models),
        paper=paper_claim_section(),
    )


def _effects_table(losses: StudiedLosses) -> str:
    """Write cost, lead, and E6; empty while models are missing."""
    rows = []
    for stride, windows in (("", "no overlap"), (SLIDING, f"S = {losses.models.sliding_stride}")):
        effects = estimate_cost_and_lead(losses, stride=stride)
        if effects is not None:
            rows.append(EffectsRow([windows], effects))
    return cost_and_lead_table(["windows"], rows)


def _methods_trained_long(losses: StudiedLosses) -> list[str]:
    """Return the methods trained and evaluated at 4 L, in the order of method names."""
    known = list(METHOD_NAMES)
    methods = {key.method for key in losses.by_key}
    ordered = sorted(methods, key=lambda name: (name not in known, name))
    return [method for method in ordered if losses.find(f"{method}-4@4") is not None]


def _claim_table(losses: StudiedLosses, trained_long: list[str]) -> str:
    """Write perplexity at 4 L of ALiBi trained at L and of the models trained at 4 L."""
    length = losses.models.train_length
    headers = ["", "trained at", f"perplexity at {4 * length}"]
    headers += ["ALiBi (L) vs. it", "95% interval", "seeds"]
    rows = []
    evaluations = ["alibi-1@4", *(f"{method}-4@4" for method in trained_long)]
    for evaluation in evaluations:
        found = losses.find(evaluation)
        assert found is not None, "the evaluations are those that exist"
        change = None
        if evaluation != "alibi-1@4":
            change = losses.change("alibi-1@4", evaluation)
        row = [method_name(found.model.method), str(found.model.train_length)]
        row += [perplexity_cell(found), *change_cells(change), str(len(found.seeds))]
        rows.append(row)
    return markdown.table(headers, rows)


def _panel(losses: StudiedLosses) -> Panel:
    """Create the panel of ALiBi trained at L and the models trained at 4 L, at up to 4 L."""
    corpus = losses.models.corpus
    short = losses.models.train_length
    long = 4 * short
    lines = []
    for train_length in (short, long):
        for method, by_length in at_train_length(losses.by_key, corpus, train_length).items():
            if train_length == short and method != "alibi":
                continue
            shown = {length: value for length, value in by_length.items() if length <= long}
            style = method_style(method_name(method), train_length, (short, long))
            label = f"{method_name(method)}, L = {train_length}"
            lines.append(model_line(label, shown, style))
    return Panel(f"This study ({corpus})", lines, trained_at=short, end_labels=True)
