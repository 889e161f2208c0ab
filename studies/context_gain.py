"""How much of ALiBi's decrease in longer windows comes from longer context.

In longer windows without overlap, fewer tokens have little context (the early-token curse). A small
stride removes this effect, and limited attention removes most of the longer context instead.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

from alibi_fairseq.paper import published
from alibi_fairseq.reporting import markdown
from alibi_fairseq.reporting.table import Column, Table

from .estimates import Estimate, change_between, percent
from .losses import Losses
from .pages import section
from .primary_tests import StudiedModels, alibi_model
from .prose import change_in_words
from .study_results import StudyResults
from .tables import change_cell, interval_cell

#: Evaluation lengths, in training lengths.
MULTIPLES = (2, 4, 16)
#: Training lengths of the paper's Table 15.
PAPER_LENGTHS = (512, 1024)


class ModelSet(NamedTuple):
    """Models of one size and budget.

    Attributes:
        study: results of the models.
        models: text and training length.
    """

    study: StudyResults
    models: StudiedModels


class _Gain(NamedTuple):
    """ALiBi's change from L to a multiple of L, in nats. None means unknown.

    Attributes:
        full: without overlap.
        sliding: with a small stride.
        limited: without overlap, with attention limited to L.
    """

    multiple: int
    full: float | None
    sliding: float | None
    limited: float | None


def context_gain_section(losses: Losses, models: StudiedModels) -> str:
    """Return the table of ALiBi's changes from L; empty without its evaluations at L."""
    if models.key("alibi") not in losses:
        return ""
    stride = models.train_length // 8
    rows = []
    for multiple in MULTIPLES:
        full = _value(_estimate(losses, models, multiple))
        sliding = _value(_estimate(losses, models, multiple, stride=stride))
        limited = _value(_estimate(losses, models, multiple, variant="limited"))
        rows.append(_Gain(multiple, full, sliding, limited))
    columns = [
        Column[_Gain]("vs. L", lambda row: f"{row.multiple} L"),
        Column[_Gain]("no overlap", lambda row: _percent(row.full)),
        Column[_Gain](f"S = {stride}", lambda row: _percent(row.sliding)),
        Column[_Gain]("share", lambda row: _share(row.sliding, row.full)),
        Column[_Gain]("attention limited to L", lambda row: _percent(row.limited)),
        Column[_Gain]("share", lambda row: _share(row.limited, row.full)),
    ]
    for length in PAPER_LENGTHS:
        columns.append(Column(f"paper, L = {length}", partial(_paper_cell, length)))
    paper_change = _paper_change(PAPER_LENGTHS[0], 4)
    assert paper_change is not None, "Table 15 has both lengths"
    return section(
        "context-gain",
        stride=stride,
        changes=markdown.to_markdown([Table(columns, rows)]),
        paper_length=PAPER_LENGTHS[0],
        paper_change=change_in_words(paper_change),
    )


def _paper_cell(train_length: int, row: _Gain) -> str:
    """Return the paper's change from L with S = 1."""
    return _percent(_paper_change(train_length, row.multiple))


class _SetGain(NamedTuple):
    """ALiBi's changes at 4 L in a set of models."""

    facts: list[str]
    full: Estimate
    sliding: Estimate | None
    limited: Estimate | None


def context_gain_by_budget(sets: Iterable[ModelSet]) -> str:
    """Return a table of ALiBi's changes at 4 L in several sets of models; empty without any."""
    rows = []
    for study, models in sets:
        losses = study.losses
        full = _estimate(losses, models, 4)
        if full is None:
            continue
        sliding = _estimate(losses, models, 4, stride=models.train_length // 8)
        unlimited = models.key("alibi", 4)
        limited = change_between(losses, models.key("alibi", 4, variant="limited"), unlimited)
        rows.append(_SetGain(_describe(study, models), full, sliding, limited))
    if not rows:
        return ""
    columns = []
    for index, title in enumerate(("parameters", "tokens", "text", "L")):
        columns.append(Column(title, partial(_fact, index)))
    columns += [
        Column("4 L vs. L, no overlap", lambda row: change_cell(row.full)),
        Column("95% interval", lambda row: interval_cell(row.full)),
        Column("4 L vs. L, S = L/8", lambda row: change_cell(row.sliding)),
        Column("95% interval", lambda row: interval_cell(row.sliding)),
        Column("attention limited to L vs. unlimited", lambda row: change_cell(row.limited)),
        Column("95% interval", lambda row: interval_cell(row.limited)),
    ]
    changes = markdown.to_markdown([Table(columns, rows, left=0)])
    return section("context-gain-by-budget", changes=changes)


def _fact(index: int, row: _SetGain) -> str:
    return row.facts[index]


def _describe(study: StudyResults, models: StudiedModels) -> list[str]:
    """Return the size, tokens, text, and training length of the ALiBi models of a set."""
    last = alibi_model(study, models).last_validation
    parameters = f"{(last.series.facts.parameters or 0) / 1e6:.3g}M"
    tokens = f"{(last.cost.trained_tokens or 0) / 1e6:.3g}M"
    return [parameters, tokens, models.corpus, str(models.train_length)]


def _estimate(
    losses: Losses,
    models: StudiedModels,
    multiple: int,
    stride: int | None = None,
    variant: str = "",
) -> Estimate | None:
    """Estimate ALiBi's change from L, with the same stride; None if it is not known.

    Attention limited to L tokens is the same as unlimited attention at L.
    """
    longer = models.key("alibi", multiple, stride, variant)
    return change_between(losses, longer, models.key("alibi", 1, stride))


def _value(estimate: Estimate | None) -> float | None:
    """Return the estimated change in nats; None if it is not known."""
    return None if estimate is None else estimate.value


def _paper_change(train_length: int, multiple: int) -> float | None:
    """Return the change from L in Table 15, in nats; None if the paper does not have it."""
    by_length = {}
    for row in published.rows("table15"):
        if row["train_length"] == train_length:
            by_length[row["length"]] = row["perplexity"]
    if multiple * train_length not in by_length:
        return None
    return math.log(by_length[multiple * train_length] / by_length[train_length])


def _percent(change: float | None) -> str:
    return markdown.NOTHING if change is None else percent(change)


def _share(part: float | None, whole: float | None) -> str:
    """Return what percentage of a decrease a part is; a dash without a decrease."""
    if part is None or whole is None or whole >= 0:
        return markdown.NOTHING
    return f"{100 * part / whole:.0f}%"
