"""Figures of the paper (:data:`FIGURES`), with hollow points for the paper's values.

Most of them show perplexity by evaluation length; :mod:`.speed_figures` draws the others. Figures 3
and 10 are diagrams.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from ..reporting.figures_by_length import draw_panels
from ..reporting.rows import Row, without_length
from . import published
from .report_data import ReportData
from .report_tables import JOINED
from .speed_figures import (
    draw_perplexity_by_speed,
    draw_speed_and_memory,
    draw_training_speed,
    draw_training_time,
)
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
        draw: function that draws our results and the paper's, and writes them to paths.
    """

    table: str
    caption: str
    draw: Callable[..., None]


def _by_length(title: str, *panels: LengthPanel) -> Callable[..., None]:
    """Return the function that draws perplexity by length in some panels."""
    return partial(draw_lengths, title, panels)


def draw_lengths(
    title: str,
    panels: Sequence[LengthPanel],
    report_data: ReportData,
    *paths: str | os.PathLike,
) -> None:
    """Draw perplexity by evaluation length, the paper's lines and ours.

    Args:
        title: title of the figure.
        panels: panels of the figure.
        report_data: our results.
        paths: files to write.
    """
    drawn = {panel.title: _panel_models(panel, report_data) for panel in panels}
    draw_panels(title, drawn, *paths)


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


_WIKITEXT = "WikiText-103, validation"
_BOOKS = "Toronto BookCorpus, validation"
_LARGE = "CC100+RoBERTa, 1.3B parameters, validation"
#: Figures with data, by item.
FIGURES = {
    "figure01": PaperFigure(
        "table04",
        "Figure 1: perplexity beyond the training length",
        _by_length(
            _WIKITEXT,
            LengthPanel("trained at L=512", ("table02",), 512),
            LengthPanel("trained at L=1024", ("table03",), 1024),
        ),
    ),
    "figure02": PaperFigure(
        "table01", "Figure 2: speed and memory by length", draw_speed_and_memory
    ),
    "figure04": PaperFigure(
        "table05",
        "Figure 4: perplexity of ALiBi by training length",
        _by_length(_WIKITEXT, LengthPanel("non-overlapping", ("table05",))),
    ),
    "figure05": PaperFigure(
        "table11",
        "Figure 5: perplexity of 1.3B parameters by training time, of the paper's curves the ends",
        draw_training_time,
    ),
    "figure06": PaperFigure(
        "table12",
        "Figure 6: perplexity of 1.3B parameters beyond the training length",
        _by_length(
            _LARGE,
            LengthPanel("trained at L=512", ("figure06",), 512),
            LengthPanel("trained at L=1024", ("figure06",), 1024),
        ),
    ),
    "figure07": PaperFigure(
        "table01", "Figure 7: training speed by training length", draw_training_speed
    ),
    "figure08": PaperFigure(
        "table05",
        "Figure 8: perplexity at 3,072 tokens by training speed, a point for each training length",
        draw_perplexity_by_speed,
    ),
    "figure09": PaperFigure(
        "table08",
        "Figure 9: perplexity of ALiBi by training length on books",
        _by_length(_BOOKS, LengthPanel("non-overlapping", ("table08",))),
    ),
    "figure11": PaperFigure(
        "table15",
        "Figure 11: perplexity beyond the training length with a sliding window, S=1",
        _by_length(_WIKITEXT, LengthPanel("sliding window, S=1", ("table15", "table13"))),
    ),
}
