"""Tables and figures of perplexity by evaluation length, for any corpus."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from alibi_fairseq.reporting import markdown, plots
from alibi_fairseq.results.measurements import Measurement, Series, group_by_model, text_names

#: Additional columns of a table: header → (position method, training length) → text.
Columns = Mapping[str, Mapping[tuple[str, int | None], str]]


def length_table(points: Iterable[Measurement], more: Columns | None = None) -> str:
    """Format perplexities by model and length in Markdown, one table per split, stride, and text.

    A table of bits per byte, which are comparable across tokenizers, follows each table for which
    they are known.

    Args:
        points: measurements of any models.
        more: additional columns, such as training costs.
    """
    tables = []
    for name, part in split_by_evaluation(points).items():
        tables.append(f"Perplexity on {markdown.literal(name)}:\n\n{_by_length(part, more=more)}")
        if any(point.bits_per_byte is not None for point in part):
            table = _by_length(part, _bits_per_byte)
            tables.append(f"Bits per byte on {markdown.literal(name)}:\n\n{table}")
        note = markdown.past_end_note(part)
        if note:
            tables.append(note)
    text = "\n".join(tables)
    return f"{text}\n{markdown.CHANCE_NOTE}\n" if markdown.CHANCE in text else text


def split_by_evaluation(points: Iterable[Measurement]) -> dict[str, list[Measurement]]:
    """Group the measurements that are comparable, validation and non-overlapping windows first.

    A group has one split, one stride, and one text. Its name, such as ``valid, non-overlapping``,
    includes the text only if there are several.
    """
    ordered = sorted(points, key=_evaluation_order)
    names = text_names(point.text for point in ordered)
    parts: dict[str, list[Measurement]] = defaultdict(list)
    for point in ordered:
        name = ", ".join(filter(None, (point.subset, point.inference, names[point.text])))
        parts[name].append(point)
    return parts


def _evaluation_order(point: Measurement) -> tuple[bool, str, bool, int]:
    """Return the sort key of a measurement's split and stride."""
    stride = 0 if point.nonoverlapping else point.stride
    return (point.subset != "valid", point.subset, not point.nonoverlapping, stride)


def _by_length(
    points: list[Measurement],
    show: Callable[[Measurement | None], str] = markdown.point,
    more: Columns | None = None,
) -> str:
    """Format one table with a row per model and a column per evaluation length."""
    extra_columns = more or {}
    lengths = sorted({point.length for point in points})
    rows = []
    for model in group_by_model(points):
        by_length = {point.length: point for point in model.points}
        row = [model.label]
        for length in lengths:
            measured = by_length.get(length)
            is_shorter = length < (model.train_length or 0)
            row.append(markdown.NOTHING if measured is None and is_shorter else show(measured))
        key = (model.position_method, model.train_length)
        for texts in extra_columns.values():
            row.append(texts.get(key, markdown.NOTHING))
        rows.append(row)
    return markdown.table([markdown.CORNER, *map(str, lengths), *extra_columns], rows)


def _bits_per_byte(point: Measurement | None) -> str:
    if point is None or point.bits_per_byte is None:
        return markdown.MISSING
    mark = f" {markdown.PAST_END}" if point.is_past_end else ""
    return f"{point.bits_per_byte:.4f}{mark}"


def draw_lengths(points: list[Measurement], title: str, *paths: str | os.PathLike) -> None:
    """Draw perplexity against length, one line per model, one panel per split, stride, and text.

    Several methods at several training lengths get a panel per training length. Panels with a
    single evaluation length show no trend and are omitted if there are other panels.
    """
    panels = {}
    for name, part in split_by_evaluation(points).items():
        lines = group_by_model(part)
        train_lengths = sorted({point.train_length for point in part})
        methods = {point.position_method for point in part}
        if len(train_lengths) == 1 or len(methods) == 1:
            panels[name] = lines
            continue
        for train_length in train_lengths:
            same_length = [line for line in lines if line.train_length == train_length]
            panels[f"{name}, trained at L={train_length}"] = without_length(same_length)
    informative = {name: lines for name, lines in panels.items() if _has_several_lengths(lines)}
    plots.draw_panels(title, informative or panels, *paths)


def _has_several_lengths(lines: Iterable[Series]) -> bool:
    """Return True if any line has points at more than one evaluation length."""
    return any(len({point.length for point in line.points}) > 1 for line in lines)


def without_length(lines: Iterable[Series]) -> list[Series]:
    """Remove the training length from labels, for a panel whose title contains it."""
    return [replace(line, name=line.name.replace(f", L={line.train_length}", "")) for line in lines]
