"""Names, changes, and perplexities in tables and figures of the studies' pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from alibi_fairseq.positions.spec import LayerMethod
from alibi_fairseq.reporting import markdown, plots
from alibi_fairseq.reporting.line_styles import LineStyle, method_style
from alibi_fairseq.reporting.plots import Panel, PlotLine

from .analysis.by_length import MethodLosses
from .analysis.estimates import Estimate, percent
from .analysis.losses import ArticleLosses

#: Abbreviations by which readers know position methods.
ABBREVIATIONS = {"rotary": "RoPE", "none": "NoPE"}
#: Headers of the cells of :func:`change_cells`.
CHANGE_HEADERS = ("change", "95% interval")


def method_label(notation: str) -> str:
    """Return the name of a position method in tables, such as ``ALiBi, even slopes``.

    Args:
        notation: its notation (:func:`.evaluation_key.method_notation`).
    """
    name, *settings = notation.split("/")
    options = dict(setting.split("=", 1) for setting in settings)
    return LayerMethod(name, options).label


def known_name(method: str) -> str:
    """Return the name of a position method with its abbreviation, if readers know it by one."""
    if method not in ABBREVIATIONS:
        return method_label(method)
    return f"{method_label(method)} ({ABBREVIATIONS[method]})"


def percent_cell(nats: float | None) -> str:
    """Return a change in nats as a change of perplexity; a dash for an unknown one."""
    return markdown.NOTHING if nats is None else percent(nats)


def change_cells(estimate: Estimate | None) -> list[str]:
    """Return an estimated change and its 95% interval; dashes for an unknown one."""
    if estimate is None:
        return [markdown.NOTHING, markdown.NOTHING]
    low, high = estimate.interval()
    return [percent(estimate.value), f"{percent(low)} … {percent(high)}"]


def with_interval(estimate: Estimate) -> str:
    """Return an estimated change with its 95% interval in parentheses."""
    change, interval = change_cells(estimate)
    return f"{change} ({interval})"


def seeds_cell(estimate: Estimate) -> str:
    """Return the number of seeds of a change, one for each group of models that differs."""
    return " and ".join(str(count) for count in dict.fromkeys(estimate.seeds))


def percentage(share: float) -> str:
    """Return a share of a gain in percent, or ``none`` for a loss."""
    return f"{100 * share:.0f}%" if share > 0 else "none"


def millions(tokens: float | None) -> str:
    """Return a number of tokens in millions."""
    return f"{(tokens or 0) / 1e6:.1f}M"


def perplexity_table(models: MethodLosses, lengths: Sequence[int]) -> str:
    """Write perplexity by method and evaluation length; the mean of the seeds."""
    headers = ["evaluated at →", *map(str, lengths), "seeds"]
    rows = []
    for method, by_length in models.items():
        row = [method_label(method)]
        row += [perplexity_cell(by_length.get(length)) for length in lengths]
        seeds = max(len(losses.seeds) for losses in by_length.values())
        rows.append([*row, str(seeds)])
    return markdown.table(headers, rows)


def perplexity_cell(losses: ArticleLosses | None) -> str:
    """Return the perplexity of an evaluation; a dash without one."""
    return markdown.NOTHING if losses is None else markdown.perplexity(losses.perplexity)


def draw_method_lengths(
    models: MethodLosses, lengths: Sequence[int], train_length: int, path: Path
) -> str:
    """Draw perplexity by evaluation length, a line per method with its standard deviation.

    Returns:
        The figure in Markdown. Its alternative text has the ends of each line.
    """
    lines = []
    changes = []
    for method, losses_by_length in models.items():
        shown = {n: losses_by_length[n] for n in lengths if n in losses_by_length}
        lines.append(model_line(known_name(method), shown, method_style(method_label(method))))
        first = perplexity_cell(shown[min(shown)])
        last = perplexity_cell(shown[max(shown)])
        change = f"from {first} at {min(shown)} tokens to {last} at {max(shown):,}"
        changes.append(f"{method_label(method)} {change}")
    title = f"Trained at L = {train_length:,}"
    plots.draw("", [Panel(title, lines, trained_at=train_length)], path)
    return f"![Perplexity by evaluation length: {'; '.join(changes)}]({path.name})"


def model_line(
    label: str, losses_by_length: Mapping[int, ArticleLosses], style: LineStyle
) -> PlotLine:
    """Create the line of perplexity by evaluation length, with its standard deviation."""
    x = sorted(losses_by_length)
    y = [losses_by_length[length].perplexity for length in x]
    spread = [_spread(losses_by_length[length]) for length in x]
    return PlotLine(label, x, y, style, spread)


def _spread(losses: ArticleLosses) -> float:
    """Return the standard deviation of perplexity over seeds."""
    if len(losses.seeds) < 2:
        return 0.0
    return losses.perplexity * float(losses.nats.mean(axis=1).std(ddof=1))
