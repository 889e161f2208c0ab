"""Figures of perplexity, or bits per byte, by evaluation length."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial

from ..results.result import Result
from ..results.values import TextValues
from . import plots
from .figure_panels import PanelRows, draw_panels, model_panels
from .line_styles import method_style
from .row import Row
from .texts import group_by_raw_text, group_by_text, identify_raw_text, identify_text


def draw_lengths(results: Sequence[Result], title: str, *paths: str | os.PathLike) -> str:
    """Draw perplexity against length, one line per model, in the panels of :func:`model_panels`.

    The caption of :func:`draw_panels` is returned.

    Panels with a single evaluation length show no trend and are omitted if there are other panels.
    Models with different tokenizers are compared in bits per byte.

    Args:
        results: results on texts.
        title: title of the figure.
        paths: files to write.
    """
    in_bytes = has_several_tokenizers(results)
    if in_bytes:
        groups = group_by_raw_text(results)
        y = "Bits per byte"
    else:
        groups = group_by_text(results)
        y = plots.PERPLEXITY
    make_line = partial(length_line, in_bytes=in_bytes)
    panels = []
    for group, of_group in groups.items():
        panels += model_panels(of_group, group)
    return draw_panels(title, _informative(panels), *paths, make_line=make_line, y=y)


def length_line(row: Row, lengths: Sequence[int] = (), in_bytes: bool = False) -> plots.PlotLine:
    """Create the line of perplexity, or of bits per byte, by evaluation length.

    A failed evaluation is noted at the end of the line. If the text is shorter than the evaluation
    lengths of windows that do not overlap, the line ends at the longest window.

    Args:
        row: points of the model, by length.
        lengths: training lengths of the position method to distinguish.
        in_bytes: True for bits per byte, whose spread over seeds is unknown.
    """
    # All lengths beyond the end of the text have the same longest window.
    windows: list[int] = []
    values: list[float] = []
    spread: list[float] = []
    failures = []
    for point in row.points:
        value = point.bits_per_byte if in_bytes else point.perplexity
        if value is None:
            failures.append(point.status)
            continue
        window = point.case.length
        if point.is_past_end and point.longest_window is not None:
            window = point.longest_window
        if window in windows:
            continue
        windows.append(window)
        values.append(value)
        spread.append(point.spread or 0.0)
    notes = []
    if failures and windows:
        notes.append((-1, failures[0]))
    return plots.PlotLine(
        label=row.label,
        x=windows,
        y=values,
        style=method_style(row.method_name, row.train_length, lengths),
        spread=() if in_bytes else spread,
        hollow=row.is_printed,
        notes=notes,
    )


def _informative(panels: Sequence[PanelRows]) -> Sequence[PanelRows]:
    """Return the panels with several evaluation lengths, or all if there are none."""
    informative = []
    for panel in panels:
        most_lengths = max(len({point.case.length for point in row.points}) for row in panel.rows)
        if most_lengths > 1:
            informative.append(panel)
    return informative or panels


def has_several_tokenizers(results: Sequence[Result]) -> bool:
    """Return True if bits per byte of different tokenizers are known for a raw text."""
    texts = set()
    tokenizations = set()
    is_measured = True
    for result in results:
        texts.add(identify_raw_text(result))
        tokenizations.add((identify_raw_text(result), identify_text(result)))
        assert isinstance(result.values, TextValues)
        is_measured = is_measured and result.values.bits_per_byte is not None
    return len(tokenizations) > len(texts) and is_measured
