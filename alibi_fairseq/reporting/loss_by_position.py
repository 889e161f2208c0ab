"""Tables and figures of the loss by position in the window.

They show non-overlapping windows of the longest evaluation length of each model. Only there does
every window have a scored token at every position.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from alibi_fairseq.reporting.figures_by_length import draw_panels, panels_of
from alibi_fairseq.reporting.line_styles import method_style
from alibi_fairseq.reporting.plots import PlotLine
from alibi_fairseq.reporting.table import Table
from alibi_fairseq.results.evaluation_groups import split_by_evaluation
from alibi_fairseq.results.identity import Role
from alibi_fairseq.results.measurements import Measurement
from alibi_fairseq.results.model_groups import Series, group_by_model

#: Smallest number of tokens of a bucket in figures. The mean of fewer is mostly noise.
MIN_TOKENS = 100


def longest_windows(measurements: Iterable[Measurement]) -> list[Measurement]:
    """Return the measurement of each model, split, and text that shows its loss by position.

    Results of earlier versions without these losses, and lengths beyond the end of the text, are
    left out.
    """
    longest: dict[tuple, Measurement] = {}
    for measurement in measurements:
        if (
            not measurement.position_ends
            or not measurement.nonoverlapping
            or measurement.is_past_end
        ):
            continue
        key = (measurement.identity(Role.MODEL, Role.RUN), measurement.text)
        if key not in longest or measurement.length > longest[key].length:
            longest[key] = measurement
    return list(longest.values())


def position_tables(measurements: Iterable[Measurement]) -> list[Table]:
    """Return the losses by position, one table per split, text, and evaluation length.

    Tables have a row per bucket and a column per model. There is none without such losses.
    """
    tables = []
    for name, part in split_by_evaluation(longest_windows(measurements)).items():
        same_buckets: dict[tuple, list[Measurement]] = defaultdict(list)
        for measurement in part:
            buckets = (
                measurement.length,
                tuple(measurement.position_ends),
                tuple(measurement.position_tokens),
            )
            same_buckets[buckets].append(measurement)
        for (length, _, _), members in same_buckets.items():
            caption = f"Bits per token on {name}, by position in windows of {length}"
            tables.append(replace(_by_position(members), caption=caption))
    return tables


def _by_position(measurements: list[Measurement]) -> Table:
    """Create the table of models with the same buckets."""
    models = group_by_model(measurements)
    rows = []
    for index, (first, last) in enumerate(_ranges(measurements[0].position_ends)):
        tokens = measurements[0].position_tokens[index]
        if tokens == 0:
            continue
        positions = str(last) if first == last else f"{first}–{last}"
        row = [positions, f"{tokens:,}"]
        for model in models:
            row.append(_loss_text(model.measurements[0], index))
        rows.append(row)
    labels = [model.label for model in models]
    return Table(["position", "tokens", *labels], rows)


def _ranges(ends: Sequence[int]) -> list[tuple[int, int]]:
    """Return the first and last position of each bucket."""
    firsts = [1]
    for end in ends[:-1]:
        firsts.append(end + 1)
    return list(zip(firsts, ends, strict=True))


def _loss_text(measurement: Measurement, index: int) -> str:
    """Format the mean loss of a bucket in bits per token, with the spread of averaged seeds."""
    tokens = measurement.position_tokens[index]
    text = f"{measurement.position_bits[index] / tokens:.3f}"
    if measurement.position_spread:
        text += f" ± {measurement.position_spread[index] / tokens:.3f} ({measurement.seeds} seeds)"
    return text


def drawable(measurements: Iterable[Measurement]) -> list[Measurement]:
    """Return the measurements of :func:`longest_windows` that have enough tokens for a figure."""
    return [
        measurement
        for measurement in longest_windows(measurements)
        if max(measurement.position_tokens) >= MIN_TOKENS
    ]


def draw_positions(
    measurements: Iterable[Measurement], title: str, *paths: str | os.PathLike
) -> None:
    """Draw loss against position, one line per model.

    Args:
        measurements: measurements, at least one of them :func:`drawable`.
        title: title of the figure.
        paths: files to write.
    """
    draw_panels(
        title,
        panels_of(drawable(measurements)),
        *paths,
        line_of=line_of,
        x="Position in the window (tokens)",
        y="Loss in bits per token (lower is better)",
    )


def line_of(series: Series, lengths: Sequence[int] = ()) -> PlotLine:
    """Create the line of a model's loss by position, with a point in the middle of each bucket.

    Args:
        series: measurements of the model; the longest length is drawn.
        lengths: training lengths of the position method to distinguish.
    """
    measurement = series.measurements[-1]
    x = []
    y = []
    spread = []
    for index, (first, last) in enumerate(_ranges(measurement.position_ends)):
        tokens = measurement.position_tokens[index]
        if tokens < MIN_TOKENS:
            continue
        x.append((first + last) / 2)
        y.append(measurement.position_bits[index] / tokens)
        if measurement.position_spread:
            spread.append(measurement.position_spread[index] / tokens)
    return PlotLine(
        label=series.label,
        x=x,
        y=y,
        style=method_style(series.position_method, series.train_length, lengths),
        spread=spread,
    )
