"""Figures 1, 4, 6, 9, and 11 of the paper: perplexity by evaluation length."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple

from ..reporting.figures_by_length import draw_panels, without_length
from ..results.model_groups import ModelMeasurements
from . import published
from .report_data import ReportData
from .report_tables import JOINED
from .table_rows import table_rows


class LengthPanel(NamedTuple):
    """Panel of a figure of perplexity by evaluation length.

    Attributes:
        title: title of the panel.
        items: tables or figures of the paper whose rows are lines of the panel.
        train_length: training length of the lines, of all methods. If None, the panel has all
            training lengths, but only of ALiBi and sinusoidal.
    """

    title: str
    items: tuple[str, ...]
    train_length: int | None = None


def draw_length_figure(
    title: str, panels: Iterable[LengthPanel], report_data: ReportData, *paths: str | os.PathLike
) -> None:
    """Draw perplexity by evaluation length, the paper's lines and ours.

    Args:
        title: title of the figure.
        panels: panels of the figure.
        report_data: our measurements.
        paths: files to write.
    """
    drawn = {}
    for panel in panels:
        drawn[panel.title] = _panel_models(panel, report_data)
    draw_panels(title, drawn, *paths)


def _panel_models(panel: LengthPanel, report_data: ReportData) -> list[ModelMeasurements]:
    """Return the lines of a panel, for each item the paper's and then ours."""
    models: list[ModelMeasurements] = []
    for item in panel.items:
        ours = report_data.comparable(published.corpus_of(item))
        rows = table_rows(published.measurements(item), ours, joined=item in JOINED)
        for row in rows:
            models.append(row.printed)
        for row in rows:
            models += row.ours
    if panel.train_length is None:
        return [model for model in models if model.position_method in ("alibi", "sinusoidal")]
    same_length = [model for model in models if model.train_length == panel.train_length]
    return without_length(same_length)
