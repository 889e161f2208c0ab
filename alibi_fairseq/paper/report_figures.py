"""Figures of the paper (:data:`FIGURES`), with hollow points for the paper's values."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from .length_figures import LengthPanel, draw_length_figure
from .speed_figures import draw_figure02, draw_figure07, draw_figure08
from .training_time_figure import draw_figure05

WIKITEXT = "WikiText-103, validation"
BOOKS = "Toronto BookCorpus, validation"
LARGE = "CC100+RoBERTa, 1.3B parameters, validation"


class PaperFigure(NamedTuple):
    """Figure of the paper in the report.

    Attributes:
        table: table that the figure follows in the report.
        caption: caption of the figure.
        draw: function of our results and the paths to write.
    """

    table: str
    caption: str
    draw: Callable[..., None]


#: Figures with data, by item.
FIGURES: dict[str, PaperFigure] = {
    "figure01": PaperFigure(
        "table04",
        "Figure 1: perplexity beyond the training length",
        partial(
            draw_length_figure,
            WIKITEXT,
            [
                LengthPanel("trained at L=512", ("table02",), 512),
                LengthPanel("trained at L=1024", ("table03",), 1024),
            ],
        ),
    ),
    "figure02": PaperFigure("table01", "Figure 2: speed and memory", draw_figure02),
    "figure04": PaperFigure(
        "table05",
        "Figure 4: perplexity of ALiBi by training length",
        partial(draw_length_figure, WIKITEXT, [LengthPanel("non-overlapping", ("table05",))]),
    ),
    "figure05": PaperFigure(
        "table11",
        "Figure 5: perplexity of 1.3B parameters by training time; the paper's end points",
        draw_figure05,
    ),
    "figure06": PaperFigure(
        "table12",
        "Figure 6: perplexity of 1.3B parameters beyond the training length",
        partial(
            draw_length_figure,
            LARGE,
            [
                LengthPanel("trained at L=512", ("figure06",), 512),
                LengthPanel("trained at L=1024", ("figure06",), 1024),
            ],
        ),
    ),
    "figure07": PaperFigure(
        "table05", "Figure 7: training speed by training length", draw_figure07
    ),
    "figure08": PaperFigure(
        "table05", "Figure 8: quality at length 3072 by training speed", draw_figure08
    ),
    "figure09": PaperFigure(
        "table08",
        "Figure 9: perplexity of ALiBi by training length on books",
        partial(draw_length_figure, BOOKS, [LengthPanel("non-overlapping", ("table08",))]),
    ),
    "figure11": PaperFigure(
        "table15",
        "Figure 11: perplexity beyond the training length with a sliding window, S=1",
        partial(
            draw_length_figure,
            WIKITEXT,
            [LengthPanel("sliding window, S=1", ("table15", "table13"))],
        ),
    ),
}
