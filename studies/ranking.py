"""The ranking of methods at their training length, which no test decides."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import replace
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
from .study_results import ValidationCurves, ValidationPoint
from .tables import known_name

FIGURE = "ranking"
#: Tokens per update of the paper's models on WikiText-103, by the published flags.
PAPER_TOKENS_PER_UPDATE = 73_728


def gaps_to_alibi(
    curves: ValidationCurves, corpus: str, train_length: int
) -> dict[str, dict[int, float]]:
    """Return how far each method is behind ALiBi during training, in nats by number of updates.

    Args:
        curves: losses on the split ``valid`` during training.
        corpus: text that the models were trained on.
        train_length: training length of the models.

    Returns:
        Updates at which ALiBi was not validated are left out.
    """
    alibi = curves.get(TrainedModel(corpus, "alibi", train_length), {})
    gaps = {}
    for model, curve in sorted(curves.items()):
        if (model.corpus, model.train_length) != (corpus, train_length):
            continue
        of_method = {}
        for updates in sorted(curve.keys() & alibi.keys()):
            bits = statistics.mean(curve[updates].bits) - statistics.mean(alibi[updates].bits)
            of_method[updates] = bits * math.log(2)
        gaps[model.method] = of_method
    return gaps


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
    gaps = gaps_to_alibi(curves, corpus, train_length)
    alibi = curves.get(TrainedModel(corpus, "alibi", train_length))
    if not alibi or len(gaps) < 2:
        return ""
    lines = []
    for method, by_updates in gaps.items():
        x = [alibi[updates].tokens / 1e6 for updates in by_updates]
        y = [nats_to_percent(gap) for gap in by_updates.values()]
        # The points are so close that markers would hide the line.
        style = replace(method_style(method_name(method)), marker="")
        lines.append(PlotLine(known_name(method), x, y, style))
    changes = [change for line in lines for change in line.y]
    margin = 0.05 * (max(changes) - min(changes))
    panel = Panel(
        f"Validation in windows of {train_length} tokens, during training",
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
        gaps=_gaps_table(gaps, alibi),
        tokens=f"{tokens / 1e6:.1f}",
        paper_tokens=f"{_paper_tokens() / 1e9:.1f}",
    )


def _paper_tokens() -> int:
    """Return the tokens that the paper's models on WikiText-103 read."""
    setting = published.paper_setting("wikitext-103")
    assert setting is not None
    return setting["updates"] * PAPER_TOKENS_PER_UPDATE


def _gaps_table(
    gaps: Mapping[str, Mapping[int, float]], alibi: Mapping[int, ValidationPoint]
) -> str:
    """Write how far each method is from ALiBi in validation perplexity during training.

    The columns are an eighth, a quarter, half, and all of the updates, where ALiBi was validated
    then.
    """
    columns = [Column[str]("vs. ALiBi, tokens →", method_name)]
    last = max(alibi)
    for updates in (last // 8, last // 4, last // 2, last):
        if updates in alibi:
            title = f"{alibi[updates].tokens / 1e6:.1f}M"
            columns.append(Column(title, partial(_gap_cell, gaps, updates)))
    methods = [method for method in gaps if method != "alibi"]
    return markdown.to_markdown([Table(columns, methods)])


def _gap_cell(gaps: Mapping[str, Mapping[int, float]], updates: int, method: str) -> str:
    """Return the difference of a method from ALiBi; a dash without a validation."""
    return percent(gaps[method][updates]) if updates in gaps[method] else markdown.NOTHING
