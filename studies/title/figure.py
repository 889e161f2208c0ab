"""Figure of cost, lead, and short vs. long by training tokens."""

from __future__ import annotations

import os
from collections.abc import Sequence

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from alibi_fairseq.reporting.line_labels import LineEnd, label_line_ends
from alibi_fairseq.reporting.plots import SETTINGS, save
from alibi_fairseq.results.estimates import nats_to_percent

from ..analysis.baseline import LARGEST_LEAD
from ..analysis.cost_and_lead import CostAndLead

#: Color of each effect, none of which is the color of a position method.
COLORS = {"cost": "#4D4D4D", "lead": "#A6611A", "short_vs_long": "#7B3294"}
NAMES = {
    "cost": "cost of training ALiBi short",
    "lead": "ALiBi's lead at equal length",
    "short_vs_long": "ALiBi trained short vs.\nsinusoidal trained long",
}


@matplotlib.rc_context(SETTINGS)
def draw_effects(
    short: int, tokens: Sequence[float], effects: Sequence[CostAndLead], *paths: str | os.PathLike
) -> None:
    """Draw the three effects with their 95% intervals, each labeled at its end.

    Args:
        short: training length L of the short models.
        tokens: training tokens of each budget, in ascending order.
        effects: effects of each budget.
        paths: files to write.
    """
    figure = Figure(figsize=(7.4, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.set_title(f"Trained on {short} or {4 * short} tokens, tested on {4 * short}")
    axes.set_xscale("log")
    axes.axhline(0, color="#333333", linewidth=1)
    axes.axhline(LARGEST_LEAD, color=COLORS["lead"], linewidth=1, linestyle=(0, (1, 3)))
    axes.annotate(
        f"largest published lead, +{LARGEST_LEAD:g}%",
        (min(tokens), LARGEST_LEAD),
        xytext=(0, 4),
        textcoords="offset points",
        color=COLORS["lead"],
        fontsize=8,
    )
    ends = []
    for name, color in COLORS.items():
        estimates = [getattr(effect, name) for effect in effects]
        changes = [nats_to_percent(estimate.value) for estimate in estimates]
        axes.plot(tokens, changes, color=color, marker=".", linewidth=1.7, markersize=9)
        for x, estimate in zip(tokens, estimates, strict=True):
            low, high = estimate.interval()
            axes.vlines(x, nats_to_percent(low), nats_to_percent(high), color=color, linewidth=1)
        ends.append(LineEnd(NAMES[name], tokens, changes, color))
    # Margins would be a share of the range, which a single budget doesn't have.
    axes.set_xlim(min(tokens) / 1.2, max(tokens) * 1.02)
    axes.xaxis.set_major_locator(FixedLocator(list(tokens)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / 1e6:.1f}M"))
    axes.yaxis.set_major_formatter(
        FuncFormatter(lambda value, _: f"{value:+g}%" if value else "0%")
    )
    axes.set_xlabel("Training tokens, log scale")
    axes.set_ylabel("Difference in perplexity")
    figure.draw_without_rendering()  # computes the layout
    label_line_ends(axes, ends)
    save(figure, *paths)
