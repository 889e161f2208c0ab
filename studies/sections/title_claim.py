"""The claim of the paper's title: a model that is trained short, tested long.

ALiBi trained at L is compared with models trained at 4 L. All are evaluated at 4 L.
"""

from __future__ import annotations

from collections.abc import Sequence

from alibi_fairseq.paper import published
from alibi_fairseq.positions.display_names import METHOD_NAMES, method_name
from alibi_fairseq.reporting import markdown, plots
from alibi_fairseq.reporting.line_styles import method_style
from alibi_fairseq.reporting.plots import Panel, PlotLine

from ..analysis.baseline import is_published_lead
from ..analysis.by_length import method_losses
from ..analysis.compared_models import ComparedLosses
from ..analysis.cost_and_lead import estimate_cost_and_lead, table5_pair
from ..analysis.estimates import estimate_change, percent
from ..analysis.losses import DocumentLosses
from ..analysis.published_gaps import published_gap_range
from ..analysis.study_results import StudyResults
from .changes import change_cells, change_in_words, interval_in_words
from .perplexity_by_length import model_line, perplexity_cell
from .templates import section

FIGURE = "title-claim"


def title_claim_summary(losses: ComparedLosses) -> str:
    """Return lead and cost for the top of a page; empty while models are missing."""
    effects = estimate_cost_and_lead(losses)
    if effects is None:
        return ""
    lowest, highest = published_gap_range()
    paper = _paper_cost(losses)
    beyond = losses.change("alibi-1@16", "alibi-1@1")
    extrapolation = ""
    if beyond is not None and beyond.interval()[1] < 0:
        extrapolation = change_in_words(beyond.value)
    return section(
        "title_claim_summary",
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
        extrapolation=extrapolation,
    )


def _paper_cost(losses: ComparedLosses) -> float | None:
    """Return the cost at the lengths of a study in the paper's Table 5; None if it lacks them."""
    length = losses.models.train_length
    pair = table5_pair(length, 4 * length)
    return None if pair is None else pair.cost


def title_claim_figure(study: StudyResults, losses: ComparedLosses) -> str:
    """Return the figure of the title's claim next to the paper's, and draw it.

    Args:
        study: results of the study. The figure is written into its folder.
        losses: losses of the study.

    Returns:
        The figure in Markdown, whose alternative text has the perplexities at 4 L; nothing while
        ALiBi trained at L, or any model trained at 4 L, is missing.
    """
    compared = _compared_at_4l(losses)
    if not compared:
        return ""
    panels = [_panel(losses), _paper_panel(losses.models.train_length)]
    plots.draw("", panels, study.folder / f"{FIGURE}.svg")
    values = []
    for found in compared:
        name = f"{method_name(found.model.method)} trained on {found.model.train_length:,}"
        values.append(f"{name}, {perplexity_cell(found)}")
    longest = f"{4 * losses.models.train_length:,}"
    return section(
        "title_claim_figure", longest=longest, values="; ".join(values), file=f"{FIGURE}.svg"
    )


def title_claim_section(losses: ComparedLosses) -> str:
    """Return the table of the title's claim, and what training short costs.

    It is empty while ALiBi trained at L, or any model trained at 4 L, is missing.
    """
    compared = _compared_at_4l(losses)
    if not compared:
        return ""
    short = losses.models.train_length
    paper_cost = _paper_cost(losses)
    effects = estimate_cost_and_lead(losses)
    is_cost_smaller = False
    if effects is not None and paper_cost is not None:
        is_cost_smaller = effects.cost.interval()[1] < paper_cost
    return section(
        "title_claim",
        short=f"{short:,}",
        long=f"{4 * short:,}",
        models=_claim_table(losses, compared),
        paper_cost="" if paper_cost is None else change_in_words(paper_cost),
        is_cost_smaller=is_cost_smaller,
    )


def _compared_at_4l(losses: ComparedLosses) -> list[DocumentLosses]:
    """Return the losses at 4 L of ALiBi trained at L, and then of the models trained at 4 L.

    It is empty while ALiBi trained at L, or any model trained at 4 L, is missing.
    """
    alibi_short = losses.find("alibi-1@4")
    known = list(METHOD_NAMES)
    long = 4 * losses.models.train_length
    # Not by notation, which cannot have every value of an option.
    by_method = method_losses(losses.by_key, losses.models.corpus, long)
    trained_long = []
    for method in sorted(by_method, key=lambda name: (name not in known, name)):
        if long in by_method[method]:
            trained_long.append(by_method[method][long])
    if alibi_short is None or not trained_long:
        return []
    return [alibi_short, *trained_long]


def _claim_table(losses: ComparedLosses, compared: Sequence[DocumentLosses]) -> str:
    """Write perplexity at 4 L of ALiBi trained at L and of the models trained at 4 L."""
    length = losses.models.train_length
    headers = ["", "trained at", f"perplexity at {4 * length}"]
    headers += [f"ALiBi ({length}) vs. this model", "95% interval", "seeds"]
    rows = []
    for found in compared:
        change = None
        if found is not compared[0]:
            change = estimate_change(compared[0], found)
        row = [method_name(found.model.method), str(found.model.train_length)]
        row += [perplexity_cell(found), *change_cells(change), str(len(found.seeds))]
        rows.append(row)
    return markdown.table(headers, rows)


def _panel(losses: ComparedLosses) -> Panel:
    """Create the panel of ALiBi trained at L and the models trained at 4 L, at up to 4 L."""
    corpus = losses.models.corpus
    short = losses.models.train_length
    long = 4 * short
    lines = []
    for train_length in (long, short):  # the short ones are on top, because ALiBi's coincide
        for method, by_length in method_losses(losses.by_key, corpus, train_length).items():
            if train_length == short and method != "alibi":
                continue
            shown = {length: value for length, value in by_length.items() if length <= long}
            style = method_style(method_name(method), train_length, (short, long))
            label = f"{method_name(method)}, L = {train_length:,}"
            lines.append(model_line(label, shown, style))
    return Panel(f"This study ({corpus})", lines, trained_at=short)


def _paper_panel(short: int) -> Panel:
    """Create the panel of Table 5, at the training length of a study.

    Args:
        short: training length L of the study. Without it in the paper, L is 512.
    """
    if table5_pair(short, 4 * short) is None:
        short = 512
    long = 4 * short
    lines = []
    for method, train_length in (("alibi", long), ("sinusoidal", long), ("alibi", short)):
        x = []
        y = []
        for row in published.rows("table05"):
            found = row["position_method"], row["train_length"]
            if found == (method, train_length) and row["length"] <= long:
                x.append(row["length"])
                y.append(row["perplexity"])
        label = f"{method_name(method)}, L = {train_length:,}"
        style = method_style(method_name(method), train_length, (short, long))
        lines.append(PlotLine(label, x, y, style))
    return Panel("The paper (Table 5)", lines, trained_at=short)
