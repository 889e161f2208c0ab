"""Figures of perplexity against evaluation length; the other figures are in more_figures.py."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from matplotlib.axes import Axes

from alibi_fairseq.errors import BadInput
from alibi_fairseq.reporting import style
from alibi_fairseq.reporting.tables import split_by_inference
from alibi_fairseq.results.points import Point, evaluation_points, runs


@dataclass(frozen=True)
class Series:
    """One line: its points in order of length, and whether they are the paper's (hollow markers).

    ``train_length`` is None for a line through models of different training lengths.
    """

    label: str
    position_method: str
    train_length: int | None
    points: Sequence[Point]
    hollow: bool = False


def perplexity_by_length(document: dict, path: str | os.PathLike) -> None:
    """Draw an evaluation document: perplexity against length, one line per model.

    Args:
        path: where to write; its suffix (.png or .svg) is the format.

    Raises:
        BadInput: the document holds no cells.
    """
    points = evaluation_points(document)
    if not points:
        raise BadInput(f"The results on {document['corpus']} hold no cells, so nothing to draw.")
    draw_lengths(points, document["corpus"], path)


def draw_lengths(points: list[Point], title: str, *paths: str | os.PathLike) -> None:
    """One panel for each split and way of cutting the text; the same figure into each path."""
    parts = split_by_inference(points)
    panels = {
        f"{subset}, {inference}": measured_series(part)
        for (subset, inference), part in parts.items()
    }
    draw_panels(title, panels, *paths)


def measured_series(points: Iterable[Point]) -> list[Series]:
    """One line for each run among the points."""
    return [
        Series(run.label, run.position_method, run.train_length, members)
        for run, members in runs(points).items()
    ]


def labelled_by_method(lines: Iterable[Series]) -> list[Series]:
    """The lines of a panel whose title says the training length: labelled without it."""
    return [
        replace(line, label=line.label.replace(f", L={line.train_length}", "")) for line in lines
    ]


def draw_panels(title: str, panels: dict[str, list[Series]], *paths: str | os.PathLike) -> None:
    """Panels of lines by their titles, with one legend.

    A method looks the same in every panel. Training lengths of one method are told apart unless
    each panel has only one.
    """
    lengths = {name: {series.train_length for series in lines} for name, lines in panels.items()}
    several = any(len(found) > 1 for found in lengths.values())
    everything = [series for lines in panels.values() for series in lines] if several else []
    with style.figure(title, len(panels)) as (figure, axes):
        for panel, (name, lines) in zip(axes, panels.items(), strict=True):
            plot_series(panel, lines, everything)
            panel.set_title(name)
            if len(lengths[name]) == 1:
                style.mark_training_length(panel, *lengths[name])
        style.legend(figure, axes)
        for path in paths:
            style.save(figure, path)


def plot_series(axes: Axes, lines: Sequence[Series], everything: Iterable[Series] = ()) -> None:
    """Lines of perplexity against evaluation length.

    Args:
        everything: lines that the training lengths of a method are to be told apart from.
    """
    seen: Counter = Counter()
    for series in lines:
        look = _look(series, everything)
        place = seen[look, series.hollow]
        seen[look, series.hollow] += 1
        known = [point for point in series.points if point.perplexity is not None]
        lengths = [point.length for point in known]
        axes.plot(
            lengths,
            [point.perplexity for point in known],
            label=series.label,
            markevery=style.sparse_markers(lengths),
            **look.variant(place).line(hollow=series.hollow),
        )
        failed = [point for point in series.points if point.perplexity is None]
        if failed:
            last = (known[-1].length, known[-1].perplexity)
            style.annotate(axes, failed[0].status, last, (6, 0), "left")
    points = [point for series in lines for point in series.points]
    style.length_axis(axes, [point.length for point in points])
    style.perplexity_axis(axes, [p.perplexity for p in points if p.perplexity is not None])


def _look(series: Series, everything: Iterable[Series]) -> style.Look:
    lengths = {
        other.train_length
        for other in everything
        if other.position_method == series.position_method and other.train_length is not None
    }
    if series.train_length is None or len(lengths) < 2:
        return style.method_look(series.position_method)
    return style.length_look(series.position_method, series.train_length, sorted(lengths))
