"""Perplexity against evaluation length: tables, CSV and figures of evaluation results."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace

from alibi_fairseq.errors import BadInput
from alibi_fairseq.reporting import markdown, plots
from alibi_fairseq.results.points import Point, Series, caption, series, text_names

_CSV_COLUMNS = (
    *("position_method", "train_length", "length", "stride", "subset", "tokens"),
    *("loss_bits", "perplexity"),
)


#: Further columns of a table: header -> (position method, training length) -> text.
Columns = Mapping[str, Mapping[tuple[str, int], str]]


def length_table(points: Iterable[Point], more: Columns | None = None) -> str:
    """Perplexity in Markdown, one row per model and one column per length.

    One table for each split, inference (non-overlapping, S=1, …) and text, each under a line that
    says which.

    Args:
        more: columns of what was measured beside.
    """
    tables = [
        f"Perplexity on {markdown.literal(name)}:\n\n{_length_table(part, more or {})}"
        for name, part in split_by_evaluation(points).items()
    ]
    text = "\n".join(tables)
    return f"{text}\n{markdown.CHANCE_NOTE}\n" if markdown.CHANCE in text else text


def split_by_evaluation(points: Iterable[Point]) -> dict[str, list[Point]]:
    """The points that compare with each other, validation and non-overlapping windows first.

    By split, inference and, where there are several, text: ``valid, non-overlapping``.
    """
    points = sorted(points, key=_inference_order)
    names = text_names(point.text for point in points)
    parts: dict[str, list[Point]] = {}
    for point in points:
        name = ", ".join(filter(None, (point.subset, point.inference, names[point.text])))
        parts.setdefault(name, []).append(point)
    return parts


def _inference_order(point: Point) -> tuple:
    overlap = 0 if point.nonoverlapping else point.stride
    return (point.subset != "valid", point.subset, not point.nonoverlapping, overlap)


def _length_table(points: list[Point], more: Columns) -> str:
    lengths = sorted({point.length for point in points})
    rows = []
    for model in series(points):
        at = {point.length: point for point in model.points}
        shorter = {n for n in lengths if n < (model.train_length or 0)} - at.keys()
        cells = (markdown.NOTHING if n in shorter else markdown.point(at.get(n)) for n in lengths)
        key = (model.position_method, model.train_length)
        others = (of_model.get(key, markdown.NOTHING) for of_model in more.values())
        rows.append([model.label, *cells, *others])
    return markdown.table([markdown.CORNER, *map(str, lengths), *more], rows)


def length_csv(*documents: dict) -> str:
    """Evaluation documents as CSV, one line per cell, in the order of the documents."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, _CSV_COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(cell for document in documents for cell in document["cells"])
    return stream.getvalue()


def draw_lengths(points: list[Point], title: str, *paths: str | os.PathLike) -> None:
    """Draw perplexity against length, one line per model, one panel per split, inference and text.

    Several methods at several training lengths have a panel for each of these. Points that differ in
    the seed alone make one line, with a band of one standard deviation. Panels with a single length,
    where nothing can be seen, are left out if there are others.

    Args:
        points: e.g. of ``document_points(*documents)``.
        paths: where to write; the suffixes (``.png``, ``.svg``, ``.pdf``) are the formats.

    Raises:
        BadInput: there are no points.
    """
    if not points:
        raise BadInput(f"{title}: the results hold no cells, so there is nothing to draw.")
    panels = {}
    for name, part in split_by_evaluation(points).items():
        lines_of_part = series(part)
        lengths = sorted({point.train_length for point in part})
        if len(lengths) == 1 or len({point.position_method for point in part}) == 1:
            panels[name] = lines_of_part
            continue
        for length in lengths:
            own = [line for line in lines_of_part if line.train_length == length]
            panels[f"{name}, trained at L={length}"] = without_length(own)
    lines = {name: panel for name, panel in panels.items() if has_lines(panel)}
    draw_panels(title, lines or panels, *paths)


def has_lines(panel: Iterable[Series]) -> bool:
    """Whether a panel has more than single points."""
    return any(len({point.length for point in line.points}) > 1 for line in panel)


def without_length(lines: Iterable[Series]) -> list[Series]:
    """Lines labelled without the training length, for a panel whose title gives it."""
    return [
        replace(line, title=line.label.replace(f", L={line.train_length}", ""), variant="")
        for line in lines
    ]


def draw_panels(title: str, panels: dict[str, list[Series]], *paths: str | os.PathLike) -> None:
    """Panels of lines by their titles, with one legend.

    A method looks the same in every panel. Training lengths of one method are told apart unless
    each panel has only one.
    """
    several = any(len({line.train_length for line in lines}) > 1 for lines in panels.values())
    everything = [line for lines in panels.values() for line in lines]
    drawn = []
    for name, lines in panels.items():
        lengths = {line.train_length for line in lines}
        trained_at = lengths.pop() if len(lengths) == 1 else None
        shown = [line_of(line, everything if several else []) for line in lines]
        drawn.append(plots.Panel(name, shown, trained_at=trained_at))
    text = caption(point for line in everything for point in line.points)
    plots.draw(title, drawn, *paths, caption=text)


def line_of(line: Series, everything: Iterable[Series] = ()) -> plots.Line:
    """Perplexity against evaluation length; a run that failed says so at its end.

    Args:
        everything: lines that the training lengths of a method are to be told apart from.
    """
    known = [(p.length, p.perplexity, p.spread or 0.0) for p in line.points if p.perplexity]
    failed = [point.status for point in line.points if point.perplexity is None]
    lengths = {
        other.train_length
        for other in everything
        if other.position_method == line.position_method and other.train_length is not None
    }
    look = plots.method_look(line.position_method)
    if line.train_length is not None and len(lengths) > 1:
        look = plots.length_look(line.position_method, line.train_length, sorted(lengths))
    return plots.Line(
        line.label,
        [length for length, *_ in known],
        [perplexity for _, perplexity, _ in known],
        look,
        [spread for *_, spread in known],
        hollow=line.printed,
        notes=[(-1, failed[0])] if failed else [],
    )
