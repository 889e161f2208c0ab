"""Validation during training: the ranking of methods at their training length, and its change.

No test decides this ranking.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from alibi_fairseq.paper import published
from alibi_fairseq.reporting import markdown, plots
from alibi_fairseq.reporting.line_styles import method_style
from alibi_fairseq.reporting.plots import Panel, PlotLine
from alibi_fairseq.results.estimates import nats_to_percent

from ..analysis.compared_models import ComparedModels
from ..analysis.study_results import StudyResults
from ..analysis.validation_gaps import validation_gaps
from .changes import percent_cell
from .templates import section
from .wording import full_name, method_label, millions

FIGURE = "ranking"
#: Tokens per update of the paper's models on WikiText-103, by the published flags.
PAPER_TOKENS_PER_UPDATE = 73_728


def ranking_section(study: StudyResults, models: ComparedModels, folder: Path) -> str:
    """Return the differences between methods at L during training, and draw their figure.

    Args:
        folder: folder of the page, for the figure.

    Returns:
        Nothing without validations, or without ALiBi and another method.
    """
    tokens, gaps = validation_gaps(study, models.corpus, models.train_length)
    if not tokens or len(gaps) < 2:
        return ""
    lines = []
    for method, by_updates in gaps.items():
        x = [tokens[updates] / 1e6 for updates in by_updates]
        y = [nats_to_percent(gap) for gap in by_updates.values()]
        # The points are so close that markers would hide the line.
        style = replace(method_style(method_label(method)), marker="")
        lines.append(PlotLine(full_name(method), x, y, style))
    changes = [change for line in lines for change in line.y]
    margin = 0.05 * (max(changes) - min(changes))
    panel = Panel(
        f"Compared with ALiBi during training, in windows of {models.train_length} tokens",
        lines,
        x="Tokens read (millions)",
        y="Difference in perplexity (%)",
        over_length=False,
        y_limits=(min(changes) - margin, max(changes) + margin),
    )
    plots.draw("", [panel], folder / f"{FIGURE}.svg")
    last = max(tokens)
    # An eighth, a quarter, half, and all of the training, where ALiBi was validated then.
    shown = [updates for updates in (last // 8, last // 4, last // 2, last) if updates in tokens]
    rows = []
    for method, by_updates in gaps.items():
        if method != "alibi":
            cells = [percent_cell(by_updates.get(updates)) for updates in shown]
            rows.append([method_label(method), *cells])
    headers = ["vs. ALiBi, tokens →", *(millions(tokens[updates]) for updates in shown)]
    setting = published.paper_setting("wikitext-103")
    assert setting is not None, "the paper has this text"
    return section(
        "ranking",
        gaps=markdown.table(headers, rows),
        tokens=f"{tokens[last] / 1e6:.1f}",
        paper_tokens=f"{setting['updates'] * PAPER_TOKENS_PER_UPDATE / 1e9:.1f}",
    )
