"""Tables of the loss by position in the window.

They show non-overlapping windows of the longest evaluation length of each model. Only there does
every window have a scored token at every position.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from ..results.groups import average_by_model, group_by_evaluation
from ..results.record import Measurement
from .caption import conditions
from .table import Table


def longest_windows(measurements: Iterable[Measurement]) -> list[Measurement]:
    """Return the measurement with the longest windows of each run and text.

    Sliding windows, lengths beyond the end of the text, and results of earlier versions without
    losses by position are left out.
    """
    longest: dict[tuple, Measurement] = {}
    for measurement in measurements:
        has_losses = bool(measurement.position_ends)
        if not has_losses or measurement.is_past_end or not measurement.nonoverlapping:
            continue
        model = measurement.model
        run_and_text = (model.key, model.checkpoint_key, measurement.text_key)
        if run_and_text in longest and longest[run_and_text].length >= measurement.length:
            continue
        longest[run_and_text] = measurement
    return list(longest.values())


def group_by_windows(measurements: Iterable[Measurement]) -> dict[str, list[Measurement]]:
    """Group the measurements of :func:`longest_windows` that are comparable.

    Each group of :func:`.group_by_evaluation` is divided by the length of windows.
    """
    groups: dict[str, list[Measurement]] = defaultdict(list)
    for name, group in group_by_evaluation(longest_windows(measurements)).items():
        for measurement in group:
            groups[f"{name}, windows of {measurement.length:,}"].append(measurement)
    return groups


def position_tables(measurements: Iterable[Measurement]) -> list[Table]:
    """Return the losses by position, one table per split, text, and evaluation length.

    Tables have a row per bucket and a column per model. Without losses by position, there are no
    tables.
    """
    tables = []
    for name, group in group_by_windows(measurements).items():
        by_buckets: dict[tuple, list[Measurement]] = defaultdict(list)
        for measurement in group:
            buckets = (tuple(measurement.position_ends), tuple(measurement.position_tokens))
            by_buckets[buckets].append(measurement)
        caption = f"Bits per token by position on {name}"
        for same_buckets in by_buckets.values():
            tables.append(_position_table(same_buckets, caption))
    return tables


def _position_table(measurements: list[Measurement], caption: str) -> Table:
    """Create the table of models with the same evaluation length and the same buckets.

    Args:
        measurements: measurements of the models, with losses by position.
        caption: caption of the table.
    """
    models = average_by_model(measurements)
    ranges = bucket_ranges(measurements[0].position_ends)
    rows = []
    for index, tokens in enumerate(measurements[0].position_tokens):
        if tokens == 0:
            continue
        first, last = ranges[index]
        positions = f"{first}–{last}"
        if first == last:
            positions = str(last)
        row = [positions, f"{tokens:,}"]
        for model in models:
            row.append(_loss_text(model.measurements[0], index))
        rows.append(row)
    headers = ["position", "tokens"]
    headers += [model.label for model in models]
    return Table(headers, rows, caption=caption, conditions=conditions(models))


def bucket_ranges(ends: Sequence[int]) -> list[tuple[int, int]]:
    """Return the first and last position of each bucket.

    Args:
        ends: last position of each bucket.
    """
    firsts = [1]
    for end in ends[:-1]:
        firsts.append(end + 1)
    return list(zip(firsts, ends, strict=True))


def _loss_text(measurement: Measurement, index: int) -> str:
    """Format the mean loss of a bucket in bits per token, with the spread of averaged seeds.

    Args:
        measurement: a measurement with losses by position.
        index: number of the bucket, which has tokens.
    """
    tokens = measurement.position_tokens[index]
    text = f"{measurement.position_bits[index] / tokens:.3f}"
    if measurement.position_spread:
        spread = measurement.position_spread[index] / tokens
        text += f" ± {spread:.3f} ({measurement.seeds} seeds)"
    return text
