"""Tables and figures of one's own measurements by length, whatever text they were made on."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from alibi_fairseq.reporting import markdown, plots
from alibi_fairseq.results.measurements import Measurement, Series, group_by_model, text_names

#: Further columns of a table: header -> (position method, training length) -> text.
Columns = Mapping[str, Mapping[tuple[str, int | None], str]]


def length_table(points: Iterable[Measurement], more: Columns | None = None) -> str:
    """Perplexity in Markdown by model and length, a table for each split, inference and text.

    Bits per byte, which other tokenisers share, follow where they are known.

    Args:
        more: columns of what was measured beside.
    """
    tables = []
    for name, part in split_by_evaluation(points).items():
        tables.append(f"Perplexity on {markdown.literal(name)}:\n\n{_by_length(part, more=more)}")
        if any(point.bits_per_byte is not None for point in part):
            table = _by_length(part, _bits_per_byte)
            tables.append(f"Bits per byte on {markdown.literal(name)}:\n\n{table}")
        if note := markdown.past_end_note(part):
            tables.append(note)
    text = "\n".join(tables)
    return f"{text}\n{markdown.CHANCE_NOTE}\n" if markdown.CHANCE in text else text


def split_by_evaluation(points: Iterable[Measurement]) -> dict[str, list[Measurement]]:
    """The points that compare with each other, validation and non-overlapping windows first.

    By split, inference and, where there are several, text: ``valid, non-overlapping``.
    """

    def order(point: Measurement) -> tuple:
        overlap = 0 if point.nonoverlapping else point.stride
        return (point.subset != "valid", point.subset, not point.nonoverlapping, overlap)

    points = sorted(points, key=order)
    names = text_names(point.text for point in points)
    parts: dict[str, list[Measurement]] = defaultdict(list)
    for point in points:
        name = ", ".join(filter(None, (point.subset, point.inference, names[point.text])))
        parts[name].append(point)
    return parts


def _by_length(
    points: list[Measurement],
    show: Callable[[Measurement | None], str] = markdown.point,
    more: Columns | None = None,
) -> str:
    more = more or {}
    lengths = sorted({point.length for point in points})
    rows = []
    for model in group_by_model(points):
        at = {point.length: point for point in model.points}
        shorter = {n for n in lengths if n < (model.train_length or 0)} - at.keys()
        cells = (markdown.NOTHING if n in shorter else show(at.get(n)) for n in lengths)
        key = (model.position_method, model.train_length)
        others = (of_model.get(key, markdown.NOTHING) for of_model in more.values())
        rows.append([model.label, *cells, *others])
    return markdown.table([markdown.CORNER, *map(str, lengths), *more], rows)


def _bits_per_byte(point: Measurement | None) -> str:
    if point is None or point.bits_per_byte is None:
        return markdown.MISSING
    mark = f" {markdown.PAST_END}" if point.is_past_end else ""
    return f"{point.bits_per_byte:.4f}{mark}"


def draw_lengths(points: list[Measurement], title: str, *paths: str | os.PathLike) -> None:
    """Draw perplexity against length, one line per model, one panel per split, inference and text.

    Several methods at several training lengths have a panel for each of these. Panels with a single
    length, where nothing can be seen, are left out if there are others.
    """
    panels = {}
    for name, part in split_by_evaluation(points).items():
        lines = group_by_model(part)
        lengths = sorted({point.train_length for point in part})
        if len(lengths) == 1 or len({point.position_method for point in part}) == 1:
            panels[name] = lines
            continue
        for length in lengths:
            own = [line for line in lines if line.train_length == length]
            panels[f"{name}, trained at L={length}"] = without_length(own)
    several = {
        name: lines
        for name, lines in panels.items()
        if any(len({point.length for point in line.points}) > 1 for line in lines)
    }
    plots.draw_panels(title, several or panels, *paths)


def without_length(lines: Iterable[Series]) -> list[Series]:
    """Lines labelled without the training length, for a panel whose title gives it."""
    return [replace(line, name=line.name.replace(f", L={line.train_length}", "")) for line in lines]
