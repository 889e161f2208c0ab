"""Figures of the paper (:data:`FIGURES`), with hollow points for the paper's values.

They show perplexity by evaluation length. Figures 2, 5, 7, and 8 are left out: they show speed,
memory, and training time.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from ..reporting.figures_by_length import draw_panels
from ..reporting.rows import Row, without_length
from . import published
from .report_data import ReportData
from .report_tables import JOINED
from .table_rows import table_rows


class LengthPanel(NamedTuple):
    """Panel of a figure.

    Attributes:
        title: title of the panel.
        items: tables or figures of the paper whose rows are lines of the panel.
        train_length: training length of the lines, of all methods. If None, the panel has all
            training lengths, but only of ALiBi and sinusoidal.
    """

    title: str
    items: tuple[str, ...]
    train_length: int | None = None


class PaperFigure(NamedTuple):
    """Figure of the paper in the report.

    Attributes:
        table: table that the figure follows in the report.
        caption: caption of the figure.
        title: title in the figure.
        panels: panels of the figure.
    """

    table: str
    caption: str
    title: str
    panels: tuple[LengthPanel, ...]


_WIKITEXT = "WikiText-103, validation"
_BOOKS = "Toronto BookCorpus, validation"
_LARGE = "CC100+RoBERTa, 1.3B parameters, validation"
#: Figures with data, by item.
FIGURES = {
    "figure01": PaperFigure(
        "table04",
        "Figure 1: perplexity beyond the training length",
        _WIKITEXT,
        (
            LengthPanel("trained at L=512", ("table02",), 512),
            LengthPanel("trained at L=1024", ("table03",), 1024),
        ),
    ),
    "figure04": PaperFigure(
        "table05",
        "Figure 4: perplexity of ALiBi by training length",
        _WIKITEXT,
        (LengthPanel("non-overlapping", ("table05",)),),
    ),
    "figure06": PaperFigure(
        "table12",
        "Figure 6: perplexity of 1.3B parameters beyond the training length",
        _LARGE,
        (
            LengthPanel("trained at L=512", ("figure06",), 512),
            LengthPanel("trained at L=1024", ("figure06",), 1024),
        ),
    ),
    "figure09": PaperFigure(
        "table08",
        "Figure 9: perplexity of ALiBi by training length on books",
        _BOOKS,
        (LengthPanel("non-overlapping", ("table08",)),),
    ),
    "figure11": PaperFigure(
        "table15",
        "Figure 11: perplexity beyond the training length with a sliding window, S=1",
        _WIKITEXT,
        (LengthPanel("sliding window, S=1", ("table15", "table13")),),
    ),
}


def draw_figure(figure: PaperFigure, report_data: ReportData, *paths: str | os.PathLike) -> None:
    """Draw perplexity by evaluation length, the paper's lines and ours.

    Args:
        figure: one of :data:`FIGURES`.
        report_data: our results.
        paths: files to write.
    """
    drawn = {panel.title: _panel_models(panel, report_data) for panel in figure.panels}
    draw_panels(figure.title, drawn, *paths)


def _panel_models(panel: LengthPanel, report_data: ReportData) -> list[Row]:
    """Return the lines of a panel, for each item the paper's and then ours."""
    models: list[Row] = []
    for item in panel.items:
        ours = report_data.comparable(published.corpus_of(item))
        rows = table_rows(published.measurements(item), ours, joined=item in JOINED)
        for row in rows:
            models.append(row.printed)
        for row in rows:
            models += row.ours
    if panel.train_length is None:
        return [model for model in models if model.method_name in ("ALiBi", "Sinusoidal")]
    same_length = [model for model in models if model.train_length == panel.train_length]
    return without_length(same_length)
