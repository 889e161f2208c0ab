"""The ranking of methods at their training length, which no test decides."""

from __future__ import annotations

import math
import statistics
from functools import partial
from pathlib import Path

from alibi_fairseq.paper import published
from alibi_fairseq.positions.display_names import method_name
from alibi_fairseq.reporting import markdown, plots
from alibi_fairseq.reporting.line_styles import method_style
from alibi_fairseq.reporting.plots import Panel, PlotLine
from alibi_fairseq.reporting.table import Column, Table

from .estimates import nats_to_percent, percent
from .losses import TrainedModel
from .pages import section
from .study_results import ValidationCurves
from .tables import known_name

FIGURE = "ranking"
#: Tokens per update of the paper's models on WikiText-103, by the published flags.
PAPER_TOKENS_PER_UPDATE = 73_728


def ranking_section(folder: Path, curves: ValidationCurves, corpus: str, train_length: int) -> str:
    """Return the differences between methods at L during training, and draw their figure.

    Args:
        folder: folder of the page. The figure is written here.
        curves: losses on the split ``valid`` during training.
        corpus: text that the models were trained on.
        train_length: training length L of the models.

    Returns:
        Nothing without validations, or without ALiBi and another method.
    """
    gaps = _gaps_table(curves, corpus, train_length)
    if not gaps:
        return ""
    alibi = curves[TrainedModel(corpus, "alibi", train_length)]
    lines = []
    for (trained_on, method, length), curve in sorted(curves.items()):
        if (trained_on, length) != (corpus, train_length):
            continue
        x = []
        y = []
        for updates in sorted(curve):
            if updates in alibi:
                bits = statistics.mean(curve[updates].bits) - statistics.mean(alibi[updates].bits)
                x.append(curve[updates].tokens / 1e6)
                y.append(nats_to_percent(bits * math.log(2)))
        lines.append(PlotLine(known_name(method), x, y, method_style(method_name(method))))
    changes = [change for line in lines for change in line.y]
    margin = 0.05 * (max(changes) - min(changes))
    panel = Panel(
        f"Validation at L = {train_length} during training",
        lines,
        x="Tokens read (millions)",
        y="Perplexity compared with ALiBi (%)",
        over_length=False,
        end_labels=True,
        y_limits=(min(changes) - margin, max(changes) + margin),
    )
    plots.draw("", [panel], folder / f"{FIGURE}.svg")
    tokens = alibi[max(alibi)].tokens
    return section(
        "ranking",
        gaps=gaps,
        tokens=f"{tokens / 1e6:.1f}",
        paper_tokens=f"{_paper_tokens() / 1e9:.1f}",
    )


def _paper_tokens() -> int:
    """Return the tokens that the paper's models on WikiText-103 read."""
    setting = published.setting_of("wikitext-103")
    assert setting is not None
    return setting["updates"] * PAPER_TOKENS_PER_UPDATE


def _gaps_table(curves: ValidationCurves, corpus: str, train_length: int) -> str:
    """Write how far each method is from ALiBi in validation perplexity during training.

    The columns are an eighth, a quarter, half, and all of the updates, where ALiBi was validated
    then. The text is empty without ALiBi or without another method.
    """
    alibi = curves.get(TrainedModel(corpus, "alibi", train_length))
    if not alibi:
        return ""
    methods = []
    for trained_on, method, length in sorted(curves):
        if (trained_on, length) == (corpus, train_length) and method != "alibi":
            methods.append(method)
    if not methods:
        return ""

    def gap(updates: int, method: str) -> str:
        """Return the difference of a method from ALiBi; a dash without a validation."""
        curve = curves[TrainedModel(corpus, method, train_length)]
        if updates not in curve:
            return markdown.NOTHING
        bits = statistics.mean(curve[updates].bits) - statistics.mean(alibi[updates].bits)
        return percent(bits * math.log(2))

    columns = [Column[str]("vs. ALiBi, tokens →", method_name)]
    last = max(alibi)
    for updates in (last // 8, last // 4, last // 2, last):
        if updates in alibi:
            columns.append(Column(f"{alibi[updates].tokens / 1e6:.1f}M", partial(gap, updates)))
    return markdown.to_markdown([Table(columns, methods)])
