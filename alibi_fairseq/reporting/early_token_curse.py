"""The early-token curse (paper section 5, Appendix B): sliding windows, and loss by position.

A prediction early in a window has little context. Non-overlapping windows therefore get better as
they get longer, even for a model that uses no longer context at all; with S=1 every prediction has
as much context as there is, and that part of the gain is gone.
"""

from __future__ import annotations

import math
import os
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from alibi_fairseq.reporting import markdown, plots
from alibi_fairseq.reporting.perplexity_by_length import line_of
from alibi_fairseq.results.points import Point, Series, caption, method_name, method_order, series


def stride_table(points: Iterable[Point]) -> str:
    """Non-overlapping windows beside sliding ones, for one split.

    Empty text when no length was measured in both ways.
    """
    compared = [
        (model.label, length, found)
        for model in series(points)
        for length, found in _by_length(model.points).items()
        if len(found) > 1 and "non-overlapping" in found
    ]
    sliding = sorted(
        {p.stride for *_, found in compared for p in found.values() if not p.nonoverlapping}
    )
    if not sliding:
        return ""
    headers = ["trained", "evaluated at", "non-overlapping"]
    for stride in sliding:
        headers += [f"S={stride}", "gain"]
    lines = []
    for label, length, found in compared:
        whole = found["non-overlapping"]
        line = [label, str(length), markdown.point(whole)]
        for stride in sliding:
            point = found.get(f"S={stride}")
            shown = markdown.NOTHING
            if point and point.perplexity is not None and whole.perplexity is not None:
                shown = markdown.difference(whole.perplexity - point.perplexity)
            line += [markdown.point(point), shown]
        lines.append(line)
    return markdown.table(headers, lines)


def _by_length(points: Iterable[Point]) -> dict[int, dict[str, Point]]:
    found: dict[int, dict[str, Point]] = defaultdict(dict)
    for point in points:
        found[point.length][point.inference] = point
    return found


def draw_strides(points: list[Point], title: str, *paths: os.PathLike) -> None:
    """Perplexity against length for each stride, one panel for each method.

    Args:
        points: of one split.
    """
    strides = ["non-overlapping"] + sorted({p.inference for p in points if not p.nonoverlapping})
    panels = []
    for method in sorted({p.position_method for p in points}, key=method_order):
        lines = []
        models = series(p for p in points if p.position_method == method)
        for place, stride in enumerate(strides):
            for model in models:
                cut = [point for point in model.points if point.inference == stride]
                title_of = f"{model.label.partition(', ')[2]}, {stride}"
                line = line_of(replace(model, points=cut, title=title_of, variant=""), models)
                dashes = plots.DASHES[place % len(plots.DASHES)]
                lines.append(replace(line, look=replace(line.look, linestyle=dashes)))
        panels.append(plots.Panel(method_name(method), lines))
    plots.draw(title, panels, *paths, caption=caption(points))


def position_lines(points: Iterable[Point]) -> list[Series]:
    """The points of ``position_loss`` documents by line of their plot, in order of position.

    Seeds are averaged; runs that differ in anything else have lines of their own.
    """
    points = list(points)
    shared = shared_window(points)
    by_window: dict[tuple, list[Point]] = defaultdict(list)
    for point in points:
        by_window[tuple(_window(point))].append(point)
    lines = []
    for window, members in by_window.items():
        added = "".join(f", {part}" for part in window if part not in shared)
        for line in series(members, over="position_from"):
            lines.append(replace(line, title=replace(line, variant="").label + added))
    return sorted(lines, key=lambda line: line.label)


def _window(point: Point) -> list[str]:
    return [point.subset, f"evaluated at {point.length}", point.inference]


def shared_window(points: list[Point]) -> list[str]:
    """What holds for all points: ``["valid", "evaluated at 512", "S=1"]`` or parts of it."""
    found = [_window(point) for point in points]
    return [part for part in found[0] if all(part in parts for parts in found)]


def position_table(points: Iterable[Point]) -> str:
    """Loss in bits per token by position in the window, one column per line of the plot."""
    lines = position_lines(points)
    places = [{(p.position_from, p.position_to): p for p in line.points} for line in lines]
    rows = []
    for first, end in sorted({bucket for line in places for bucket in line}):
        found = (line.get((first, end)) for line in places)
        rows.append([str(first) if end == first + 1 else f"{first}–{end - 1}", *map(_loss, found)])
    return markdown.table(["position in the window", *(line.label for line in lines)], rows)


def _loss(point: Point | None) -> str:
    if point is None:
        return markdown.NOTHING
    spread = "" if point.spread is None else f" ± {point.spread:.3f}"
    return f"{point.loss_bits:.3f}{spread}"


def context(first: int, end: int) -> float:
    """Geometric middle of the contexts of a range of positions: position p has p + 1 tokens."""
    return math.sqrt((first + 1) * end)


def draw_positions(points: list[Point], title: str, *paths: os.PathLike) -> None:
    """Loss against the context a prediction had in its window.

    Seeds make one line, with a band of one standard deviation.
    """
    found = position_lines(points)
    lines = [
        plots.Line(
            line.label,
            [context(point.position_from, point.position_to) for point in line.points],
            [point.loss_bits for point in line.points],
            plots.method_look(line.position_method),
            [point.spread or 0.0 for point in line.points],
        )
        for line in found
    ]
    lengths = {point.train_length for point in points}
    trained_at = lengths.pop() if len(lengths) == 1 else None
    axes = ("Context in the window (tokens)", "Loss (bits per token)")
    panel = plots.Panel("", lines, *axes, scale="linear", trained_at=trained_at)
    averaged = (point for line in found for point in line.points)
    plots.draw(title, [panel], *paths, caption=caption(averaged))
