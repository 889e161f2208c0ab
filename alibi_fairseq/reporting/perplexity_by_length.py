"""Perplexity against evaluation length: tables, CSV and figures of evaluation results."""

from __future__ import annotations

import csv
import io
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from matplotlib.axes import Axes

from alibi_fairseq.errors import BadInput
from alibi_fairseq.reporting import markdown, style
from alibi_fairseq.results.points import Point, Series, series, text_names

_CSV_COLUMNS = (
    *("position_method", "train_length", "length", "stride", "subset", "tokens"),
    *("loss_bits", "perplexity"),
)


def length_table(points: Iterable[Point]) -> str:
    """Perplexity in Markdown, one row per model and one column per length.

    One table for each split, inference (non-overlapping, S=1, …) and text, each under a line that
    says which.
    """
    tables = [
        f"Perplexity on {markdown.literal(name)}:\n\n{_length_table(part)}"
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


def _length_table(points: list[Point]) -> str:
    lengths = sorted({point.length for point in points})
    rows = []
    for model in series(points):
        at = {point.length: point for point in model.points}
        rows.append(
            [
                model.label,
                *(
                    markdown.NOTHING
                    if length < (model.train_length or 0) and length not in at
                    else markdown.point(at.get(length))
                    for length in lengths
                ),
            ]
        )
    return markdown.table(["trained ↓ evaluated at →", *map(str, lengths)], rows)


def length_csv(*documents: dict) -> str:
    """Evaluation documents as CSV, one line per cell, in the order of the documents."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, _CSV_COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for document in documents:
        writer.writerows(document["cells"])
    return stream.getvalue()


def draw_lengths(points: list[Point], title: str, *paths: str | os.PathLike) -> None:
    """Draw perplexity against length, one line per model, one panel per split, inference and text.

    Points that differ in the seed alone make one line, with a band of one standard deviation. Panels
    with a single length, where nothing can be seen, are left out if there are others.

    Args:
        points: e.g. of ``evaluation_points(*documents)``.
        paths: where to write; the suffixes (``.png``, ``.svg``, ``.pdf``) are the formats.

    Raises:
        BadInput: there are no points.
    """
    if not points:
        raise BadInput(f"{title}: the results hold no cells, so there is nothing to draw.")
    panels = {name: series(part) for name, part in split_by_evaluation(points).items()}
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
    lengths = {name: {line.train_length for line in lines} for name, lines in panels.items()}
    several = any(len(found) > 1 for found in lengths.values())
    everything = [line for lines in panels.values() for line in lines] if several else []
    with style.figure(title, len(panels)) as (figure, axes):
        for panel, (name, lines) in zip(axes, panels.items(), strict=True):
            plot_series(panel, lines, everything)
            panel.set_title(name)
            if len(lengths[name]) == 1:
                style.mark_training_length(panel, *lengths[name])
        style.legend(figure, axes)
        style.save(figure, *paths)


def plot_series(axes: Axes, lines: Sequence[Series], everything: Iterable[Series] = ()) -> None:
    """Lines of perplexity against evaluation length, hollow markers for the paper's.

    Args:
        everything: lines that the training lengths of a method are to be told apart from.
    """
    seen: Counter = Counter()
    for line in lines:
        look = _look(line, everything)
        place = seen[look, line.printed]
        seen[look, line.printed] += 1
        look = look.variant(place)
        known = [
            (point.length, point.perplexity, point.spread or 0.0)
            for point in line.points
            if point.perplexity is not None
        ]
        lengths = [length for length, *_ in known]
        axes.plot(
            lengths,
            [perplexity for _, perplexity, _ in known],
            label=line.label,
            markevery=style.sparse_markers(lengths),
            **look.line(hollow=line.printed),
        )
        if any(spread for *_, spread in known):
            low = [max(1.0, perplexity - spread) for _, perplexity, spread in known]
            high = [perplexity + spread for _, perplexity, spread in known]
            style.band(axes, lengths, low, high, look.color)
        failed = [point for point in line.points if point.perplexity is None]
        if failed:
            last = known[-1][:2]
            style.annotate(axes, failed[0].status, last, (6, 0), "left")
    points = [point for line in lines for point in line.points]
    style.length_axis(axes, [point.length for point in points])
    shown = [point.perplexity for point in points if point.perplexity is not None]
    top = style.perplexity_axis(axes, shown)
    for line in lines:
        measured = [(p.perplexity, p.length) for p in line.points if p.perplexity is not None]
        worst, length = max(measured, default=(0.0, 0))
        if worst > top:
            text = f"{markdown.perplexity(worst)} ↑"
            style.annotate(axes, text, (length, top), (-4, -6), "right")


def _look(line: Series, everything: Iterable[Series]) -> style.Look:
    lengths = {
        other.train_length
        for other in everything
        if other.position_method == line.position_method and other.train_length is not None
    }
    if line.train_length is None or len(lengths) < 2:
        return style.method_look(line.position_method)
    return style.length_look(line.position_method, line.train_length, sorted(lengths))
