"""Names, changes, and perplexities in tables and figures of the studies' pages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from alibi_fairseq.positions.display_names import method_name
from alibi_fairseq.reporting import markdown, plots
from alibi_fairseq.reporting.line_styles import LineStyle, method_style
from alibi_fairseq.reporting.plots import Panel, PlotLine
from alibi_fairseq.reporting.table import Column, Table

from .estimates import Estimate, percent
from .losses import ArticleLosses, Losses

#: Abbreviations by which readers know position methods.
ABBREVIATIONS = {"rotary": "RoPE", "none": "NoPE"}

#: Evaluation length -> losses, by position method.
MethodLosses = Mapping[str, Mapping[int, ArticleLosses]]


def known_name(method: str) -> str:
    """Return the name of a position method with its abbreviation, if readers know it by one."""
    if method not in ABBREVIATIONS:
        return method_name(method)
    return f"{method_name(method)} ({ABBREVIATIONS[method]})"


def change_cell(estimate: Estimate | None) -> str:
    """Return an estimated change; a dash without one."""
    return markdown.NOTHING if estimate is None else percent(estimate.value)


def interval_cell(estimate: Estimate | None) -> str:
    """Return the 95% interval of a change; a dash without one."""
    if estimate is None:
        return markdown.NOTHING
    low, high = estimate.interval()
    return f"{percent(low)} … {percent(high)}"


def seeds_cell(estimate: Estimate | None) -> str:
    """Return the number of seeds of a change, one for each group of models that differs."""
    if estimate is None:
        return markdown.NOTHING
    return " and ".join(str(count) for count in dict.fromkeys(estimate.seeds))


class NamedChange(NamedTuple):
    """Row of a table of changes."""

    name: str
    estimate: Estimate | None


#: Columns of a table of changes.
CHANGE_COLUMNS = (
    Column[NamedChange]("", lambda row: row.name),
    Column[NamedChange]("change", lambda row: change_cell(row.estimate)),
    Column[NamedChange]("95% interval", lambda row: interval_cell(row.estimate)),
    Column[NamedChange]("seeds", lambda row: seeds_cell(row.estimate)),
)


def at_train_length(
    losses: Losses, corpus: str, train_length: int, tested_on: str | None = None
) -> MethodLosses:
    """Return the evaluations without overlap and variant of the models of a training length.

    Args:
        corpus: the text that the models were trained on.
        tested_on: the text of the test split (default: ``corpus``).
    """
    by_method: dict[str, dict[int, ArticleLosses]] = defaultdict(dict)
    wanted = (corpus, tested_on or corpus, train_length)
    for key, article_losses in losses.items():
        if key.stride != key.length or key.variant:
            continue
        if (key.corpus, key.tested_on, key.train_length) == wanted:
            by_method[key.method][key.length] = article_losses
    return dict(sorted(by_method.items()))


def perplexity_table(models: MethodLosses, lengths: Sequence[int]) -> str:
    """Write perplexity by method and evaluation length; the mean of the seeds."""
    columns = [Column[str]("evaluated at →", method_name)]
    for length in lengths:
        columns.append(Column(str(length), partial(_perplexity_cell, models, length)))
    columns.append(Column("seeds", partial(_seeds_of_method, models)))
    return markdown.to_markdown([Table(columns, list(models))])


def _perplexity_cell(models: MethodLosses, length: int, method: str) -> str:
    """Return the perplexity of a method at a length; a dash without an evaluation."""
    if length not in models[method]:
        return markdown.NOTHING
    return markdown.perplexity(models[method][length].perplexity)


def _seeds_of_method(models: MethodLosses, method: str) -> str:
    return str(max(len(losses.seeds) for losses in models[method].values()))


def draw_method_lengths(
    models: MethodLosses, lengths: Sequence[int], train_length: int, *paths: Path
) -> None:
    """Draw perplexity by evaluation length, a line per method with its standard deviation."""
    lines = []
    for method, losses_by_length in models.items():
        shown = {n: losses_by_length[n] for n in lengths if n in losses_by_length}
        lines.append(model_line(known_name(method), shown, method_style(method_name(method))))
    title = f"Trained at L = {train_length}"
    plots.draw("", [Panel(title, lines, trained_at=train_length, end_labels=True)], *paths)


def lengths_alt(models: MethodLosses, lengths: Sequence[int]) -> str:
    """Return what :func:`draw_method_lengths` shows, for readers who do not see it."""
    changes = []
    for method, losses_by_length in models.items():
        shown = [length for length in lengths if length in losses_by_length]
        first = markdown.perplexity(losses_by_length[shown[0]].perplexity)
        last = markdown.perplexity(losses_by_length[shown[-1]].perplexity)
        changes.append(
            f"{method_name(method)} from {first} at {shown[0]} tokens to {last} at {shown[-1]:,}"
        )
    return f"Perplexity by evaluation length: {'; '.join(changes)}"


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
