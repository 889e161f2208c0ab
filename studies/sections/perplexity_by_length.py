"""Perplexity by evaluation length, a row or a line per method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from alibi_fairseq.reporting import markdown, plots
from alibi_fairseq.reporting.line_styles import LineStyle, method_style
from alibi_fairseq.reporting.plots import Panel, PlotLine

from ..analysis.by_length import MethodLosses
from ..analysis.losses import DocumentLosses
from .wording import full_name, method_label


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


def perplexity_cell(losses: DocumentLosses | None) -> str:
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
        lines.append(model_line(full_name(method), shown, method_style(method_label(method))))
        first = perplexity_cell(shown[min(shown)])
        last = perplexity_cell(shown[max(shown)])
        change = f"from {first} at {min(shown)} tokens to {last} at {max(shown):,}"
        changes.append(f"{method_label(method)} {change}")
    title = f"Trained at L = {train_length:,}"
    plots.draw("", [Panel(title, lines, trained_at=train_length)], path)
    return f"![Perplexity by evaluation length: {'; '.join(changes)}]({path.name})"


def model_line(
    label: str, losses_by_length: Mapping[int, DocumentLosses], style: LineStyle
) -> PlotLine:
    """Create the line of perplexity by evaluation length, with its standard deviation."""
    x = sorted(losses_by_length)
    y = [losses_by_length[length].perplexity for length in x]
    spread = [_spread(losses_by_length[length]) for length in x]
    return PlotLine(label, x, y, style, spread)


def _spread(losses: DocumentLosses) -> float:
    """Return the standard deviation of perplexity over seeds."""
    if len(losses.seeds) < 2:
        return 0.0
    return losses.perplexity * float(losses.nats.mean(axis=1).std(ddof=1))
