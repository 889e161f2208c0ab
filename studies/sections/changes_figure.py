"""Change of each position method's perplexity beyond its training length, as a sorted figure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MultipleLocator

from alibi_fairseq.reporting.line_styles import method_style
from alibi_fairseq.reporting.plots import SETTINGS, save
from alibi_fairseq.results.estimates import nats_to_percent

from ..analysis.by_length import MethodChange
from ..analysis.estimates import Estimate, percent
from .wording import full_name, method_label

#: Changes in percent at which the first panel ends and the second begins. Two methods that fail
#: would otherwise compress the differences of the others.
BREAK = 33
SMALLEST = -9
_ROW_HEIGHT = 0.29


def changes_figure(changes: Sequence[MethodChange], path: str) -> str:
    """Return the figure of changes in Markdown, whose alternative text has all of them."""
    rows = [f"{full_name(method)} {percent(estimate.value)}" for method, estimate in changes]
    alt = "Change in perplexity beyond the training length, a row per method: "
    return f"![{alt}{', '.join(rows)}]({path})"


@matplotlib.rc_context(SETTINGS)
def draw_length_changes(changes: Sequence[MethodChange], title: str, path: Path) -> str:
    """Draw a row per method: its change as a dot, with its 95% interval.

    Args:
        changes: changes in the order of the rows.
        title: title of the figure.
        path: file to write.

    Returns:
        The figure in Markdown.
    """
    figure = Figure(figsize=(8.0, 1.2 + _ROW_HEIGHT * len(changes)), layout="constrained")
    FigureCanvasAgg(figure)
    near, far = figure.subplots(1, 2, sharey=True, width_ratios=(2.2, 1))
    largest = max(nats_to_percent(change.estimate.interval()[1]) for change in changes)
    near.set_xlim(SMALLEST, BREAK)
    far.set_xlim(BREAK, max(largest, BREAK) * 1.45)
    near.xaxis.set_major_locator(MultipleLocator(5))
    far.xaxis.set_major_locator(MultipleLocator(50))
    for axes in (near, far):
        axes.xaxis.set_major_formatter(FuncFormatter(_percent_tick))
        axes.grid(axis="y", visible=False)
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
    for row, (method, estimate) in enumerate(changes):
        is_near = nats_to_percent(estimate.interval()[1]) < BREAK
        axes = near if is_near else far
        _draw_row(axes, row, method, estimate)
        for both in (near, far):
            both.axhline(row, color="#eeeeee", linewidth=0.8, zorder=0.5)
    near.axvline(0, color="#333333", linewidth=1, zorder=1)
    for axes, end in ((near, 1), (far, 0)):  # marks of the break
        axes.plot(
            end,
            0,
            color="#333333",
            marker=[(-1, -2), (1, 2)],
            markersize=10,
            clip_on=False,
            transform=axes.transAxes,
        )
    for text, offset, side in (("better", -6, "right"), ("worse", 6, "left")):
        near.annotate(
            text,
            (0, 1),
            xycoords=("data", "axes fraction"),
            xytext=(offset, 2),
            textcoords="offset points",
            ha=side,
            color="#666666",
            fontsize=9,
        )
    near.set_yticks(range(len(changes)), [full_name(method) for method, _ in changes])
    near.set_ylim(len(changes) - 0.4, -0.6)
    figure.suptitle(title, x=0.01, horizontalalignment="left")
    figure.supxlabel("Change in perplexity, with 95% interval", fontsize=10)
    save(figure, path)
    return changes_figure(changes, path.name)


def _draw_row(axes: Axes, row: int, method: str, estimate: Estimate) -> None:
    """Draw the dot and the interval of a method, with the change next to them."""
    style = method_style(method_label(method))
    low, high = (nats_to_percent(end) for end in estimate.interval())
    change = nats_to_percent(estimate.value)
    axes.hlines(row, low, high, color=style.color, linewidth=2)
    axes.plot(change, row, color=style.color, marker=style.marker, markersize=7, linestyle="none")
    # The line of no change is then free of text.
    is_negative = change < 0
    axes.annotate(
        percent(estimate.value),
        (low if is_negative else high, row),
        xytext=(-7 if is_negative else 7, 0),
        textcoords="offset points",
        ha="right" if is_negative else "left",
        va="center",
        fontsize=9,
    )


def _percent_tick(value: float, _: int) -> str:
    return f"{value:+g}%" if value else "0%"
