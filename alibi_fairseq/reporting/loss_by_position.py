"""Tables of the loss by position in the window.

They show non-overlapping windows of the longest evaluation length of each model. Only there does
every window have a scored token at every position.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import partial

from ..results.result import Result
from ..results.values import TextValues
from .common_conditions import common_conditions, has_several_seed_counts
from .differing_conditions import differing_conditions_table
from .row import Point, Row, is_past_end
from .rows import build_rows
from .table import Column, Table
from .texts import TextGroup, group_by_text, identify_text


def longest_windows(results: Iterable[Result]) -> list[Result]:
    """Return the result with the longest windows of each run and text.

    Sliding windows, lengths beyond the end of the text, and results of earlier versions without
    losses by position are left out.
    """
    longest: dict[tuple, Result] = {}
    for result in results:
        assert isinstance(result.values, TextValues)
        has_losses = bool(result.values.position_ends)
        if not has_losses or is_past_end(result) or not result.case.nonoverlapping:
            continue
        checkpoint = result.checkpoint_sha256 or result.checkpoint
        model = (result.series, result.reading, result.seed, checkpoint)
        run_and_text = (*model, identify_text(result))
        if run_and_text in longest and longest[run_and_text].case.length >= result.case.length:
            continue
        longest[run_and_text] = result
    return list(longest.values())


def group_by_windows(results: Iterable[Result]) -> dict[tuple[TextGroup, int], list[Result]]:
    """Group the results of :func:`longest_windows` that are comparable.

    Each group of :func:`.texts.group_by_text` is divided by the length of windows.
    """
    groups: dict[tuple[TextGroup, int], list[Result]] = defaultdict(list)
    for group, of_group in group_by_text(longest_windows(results)).items():
        for result in of_group:
            groups[group, result.case.length].append(result)
    return groups


def position_tables(results: Iterable[Result]) -> list[Table]:
    """Return the losses by position, one table per split, text, and evaluation length.

    Tables have a row per bucket and a column per model. Without losses by position, there are no
    tables.
    """
    tables = []
    for (group, length), of_group in group_by_windows(results).items():
        by_buckets: dict[tuple, list[Result]] = defaultdict(list)
        for result in of_group:
            assert isinstance(result.values, TextValues)
            buckets = (result.values.position_ends, result.values.position_tokens)
            by_buckets[buckets].append(result)
        caption = f"Bits per token by position on {group.name}, windows of {length:,}"
        for same_buckets in by_buckets.values():
            tables.append(_position_table(build_rows(same_buckets), caption))
    return tables


def _position_table(rows: Sequence[Row], caption: str) -> Table[int]:
    """Create the table of models with the same evaluation length and the same buckets.

    Its rows are the numbers of the buckets.

    Args:
        rows: models with losses by position, each with one point.
        caption: caption of the table.
    """
    with_seeds = has_several_seed_counts(row.points[0] for row in rows)
    first = rows[0].points[0]
    ranges = bucket_ranges(first.position_ends)
    tokens = first.position_tokens
    columns = [
        Column[int]("position", lambda bucket: _positions_text(*ranges[bucket])),
        Column[int]("tokens", lambda bucket: f"{tokens[bucket]:,}"),
    ]
    for row in rows:
        (point,) = row.points
        columns.append(Column(row.label, partial(_loss_text, point, with_seeds)))
    return Table(
        columns,
        [bucket for bucket, count in enumerate(tokens) if count > 0],
        caption=caption,
        conditions=common_conditions(rows),
        different=differing_conditions_table(rows),
    )


def _positions_text(first: int, last: int) -> str:
    """Return the range of positions of a bucket."""
    return str(last) if first == last else f"{first}–{last}"


def bucket_ranges(ends: Sequence[int]) -> list[tuple[int, int]]:
    """Return the first and last position of each bucket.

    Args:
        ends: last position of each bucket.
    """
    firsts = [1]
    for end in ends[:-1]:
        firsts.append(end + 1)
    return list(zip(firsts, ends, strict=True))


def _loss_text(point: Point, with_seeds: bool, bucket: int) -> str:
    """Format the mean loss of a bucket in bits per token, with the spread of averaged seeds.

    Args:
        point: a point with losses by position.
        with_seeds: True to state the number of seeds.
        bucket: number of the bucket, which has tokens.
    """
    tokens = point.position_tokens[bucket]
    text = f"{point.position_bits[bucket] / tokens:.3f}"
    if point.position_spread:
        spread = point.position_spread[bucket] / tokens
        text += f" ± {spread:.3f}"
        if with_seeds:
            text += f" ({point.seeds} seeds)"
    return text
