"""Figures of the loss by position, for the windows of the tables in :mod:`.loss_by_position`."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence

from ..results.result import Result
from ..results.values import TextValues
from .figure_panels import draw_panels, model_panels
from .line_styles import method_style
from .loss_by_position import bucket_ranges, group_by_windows, longest_windows
from .plots import PlotLine
from .row import Row

#: Smallest number of tokens of a bucket in figures. The mean of fewer is mostly noise.
MIN_TOKENS = 100
#: Number of tokens below which a point is hollow, because lines through such points zigzag.
FEW_TOKENS = 1000
EXPLANATION = (
    "Horizontal bars: positions that a point is the mean of. Hollow points rest on fewer than "
    f"{FEW_TOKENS:,} tokens. Positions with fewer than {MIN_TOKENS:,} tokens are left out."
)
#: Sentence on the vertical bars, which results of earlier versions lack.
ERRORS = " Vertical bars: ± one standard error of the mean over the windows of the text."


def drawable(results: Iterable[Result]) -> list[Result]:
    """Return the results of :func:`longest_windows` that have enough tokens for a figure."""
    drawable_results = []
    for result in longest_windows(results):
        assert isinstance(result.values, TextValues)
        if max(result.values.position_tokens) >= MIN_TOKENS:
            drawable_results.append(result)
    return drawable_results


def draw_positions(results: Iterable[Result], title: str, *paths: str | os.PathLike) -> str:
    """Draw loss against position, one line per model, and one panel per text and length of windows.

    The caption is returned.

    Args:
        results: results on texts, at least one of them :func:`drawable`.
        title: title of the figure.
        paths: files to write.
    """
    drawn = drawable(results)
    panels = []
    for (group, length), of_group in group_by_windows(drawn).items():
        panels += model_panels(of_group, group, f"windows of {length:,} tokens")
    return draw_panels(
        title,
        panels,
        *paths,
        make_line=position_line,
        x="Position in the window (tokens)",
        y="Loss (bits per token)",
        explanation=EXPLANATION + error_explanation(drawn),
    )


def error_explanation(results: Sequence[Result]) -> str:
    """Return a sentence on the vertical bars, if there are any, and on results without them."""
    with_errors = []
    for result in results:
        assert isinstance(result.values, TextValues)
        with_errors.append(bool(result.values.position_errors))
    if all(with_errors):
        return ERRORS
    if any(with_errors):
        return f"{ERRORS} Results of earlier versions have none."
    return ""


def position_line(row: Row, lengths: Sequence[int] = ()) -> PlotLine:
    """Create the line of a model's loss by position, with a point and a bar for each bucket.

    Args:
        row: points of the model; the last one, of the longest length, is drawn.
        lengths: training lengths of the position method to distinguish.
    """
    point = row.points[-1]
    x = []
    y = []
    spread = []
    ranges = []
    uncertain = []
    errors = []
    for index, (first, last) in enumerate(bucket_ranges(point.position_ends)):
        tokens = point.position_tokens[index]
        if tokens < MIN_TOKENS:
            continue
        x.append(math.sqrt(first * last))  # the middle on the logarithmic axis
        ranges.append((first, last))
        uncertain.append(tokens < FEW_TOKENS)
        y.append(point.position_bits[index] / tokens)
        if point.position_spread:
            spread.append(point.position_spread[index] / tokens)
        if point.position_errors:
            errors.append(point.position_errors[index])
    return PlotLine(
        label=row.label,
        x=x,
        y=y,
        style=method_style(row.method_name, row.train_length, lengths),
        spread=spread,
        ranges=ranges,
        uncertain=uncertain,
        errors=errors,
    )
