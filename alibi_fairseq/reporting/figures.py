"""Figures of perplexity against evaluation length."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence

from matplotlib.axes import Axes

from alibi_fairseq.errors import BadInput
from alibi_fairseq.reporting import style
from alibi_fairseq.reporting.points import Point, Run, evaluation_points, runs
from alibi_fairseq.reporting.tables import split_by_inference


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
    with style.figure(len(parts)) as (figure, panels):
        for axes, ((subset, inference), part) in zip(panels, parts.items(), strict=True):
            plot_lengths(axes, runs(part))
            axes.set_title(f"{title}, {subset}, {inference}")
        style.legend(figure, panels)
        for path in paths:
            style.save(figure, path)


def plot_lengths(
    axes: Axes, ours: dict[Run, list[Point]], paper: dict[Run, list[Point]] | None = None
) -> None:
    """Lines of perplexity against length, with a dotted line at each training length.

    Args:
        ours: measured runs, filled markers.
        paper: the paper's runs, hollow markers.
    """
    paper = paper or {}
    drawn = [*ours, *(run for run in paper if run not in ours)]
    for is_paper, lines in ((True, paper), (False, ours)):
        for run, points in lines.items():
            look = _look(run, drawn)
            known = [point for point in points if point.perplexity is not None]
            axes.plot(
                [point.length for point in known],
                [point.perplexity for point in known],
                label=f"{run.label} (paper)" if is_paper and ours else run.label,
                **look.line(hollow=is_paper),
            )
    everything = [point for points in (*ours.values(), *paper.values()) for point in points]
    style.length_axis(axes, [point.length for point in everything])
    style.perplexity_axis(axes, [p.perplexity for p in everything if p.perplexity is not None])
    mark_training_lengths(axes, sorted({run.train_length for run in drawn}))


def mark_training_lengths(axes: Axes, train_lengths: Sequence[int]) -> None:
    """A thin dotted line where evaluation leaves the length of training, if there is but one."""
    if len(train_lengths) == 1:
        axes.axvline(train_lengths[0], color="#777777", linewidth=0.9, linestyle=(0, (1, 2)))
        axes.annotate(
            "training length",
            (train_lengths[0], 1),
            xycoords=("data", "axes fraction"),
            xytext=(4, -4),
            textcoords="offset points",
            va="top",
            fontsize=8,
            color="#555555",
        )


def _look(run: Run, drawn: list[Run]) -> style.Look:
    """By method; by training length as well where a method has several."""
    lengths = defaultdict(set)
    for other in drawn:
        lengths[other.position_method].add(other.train_length)
    own = sorted(lengths[run.position_method])
    if len(own) == 1:
        return style.method_look(run.position_method)
    return style.length_look(run.position_method, run.train_length, own)
