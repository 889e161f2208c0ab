"""How much of ALiBi's decrease in longer windows comes from longer context.

In longer windows without overlap, fewer tokens have little context (the early-token curse). A small
stride removes this effect, and limited attention removes most of the longer context instead.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from alibi_fairseq.paper import published
from alibi_fairseq.reporting import markdown

from .estimates import Estimate, estimate_change, percent
from .losses import Losses, finished_models, last_validation, load_losses
from .primary_tests import StudiedModels
from .tables import estimate_cells

#: Evaluation lengths, in training lengths.
MULTIPLES = (2, 4, 16)
#: Training lengths of the paper's Table 15.
PAPER_LENGTHS = (512, 1024)

TEXT = """\
According to the paper (Appendix B), ALiBi's decrease in longer windows is almost only the
early-token curse. E4 and E5 take their ranges from this analysis. This table compares the study
with the paper's own measurements in sliding windows (Table 15, S = 1).

A share is the part of the decrease without overlap that remains, in log perplexity. The first share
is what remains with S = {stride}, where all tokens have nearly the whole window as context. The
second is what remains if attention is limited to the last L tokens."""

PAPER_DIFFERS = """\
In the paper, the perplexity of a model trained at {length} tokens changes by {change} from L to
4 L. This is outside the range of E4 as well, but in the other direction. The paper has one model
for each value, and no intervals."""

BY_BUDGET = """\
This table compares the changes at 4 L between models of different sizes and training budgets, with
95% intervals. The columns with S = L/8 are about E4, and the last ones about E5. The sets of models
also differ in text, L, vocabulary, and learning-rate schedule. The table therefore shows how much
such results depend on the models, but not on which property."""


class ModelSet(NamedTuple):
    """Models of one size and budget.

    Attributes:
        folder: results of the models.
        models: text and training length.
    """

    folder: Path
    models: StudiedModels


def context_gain_sections(losses: Losses, models: StudiedModels) -> list[str]:
    """Return the table of ALiBi's changes from L; empty without its evaluations at L."""
    if models.key("alibi") not in losses:
        return []
    stride = models.train_length // 8
    rows = []
    for multiple in MULTIPLES:
        full = _value(_estimate(losses, models, multiple))
        sliding = _value(_estimate(losses, models, multiple, stride=stride))
        limited = _value(_estimate(losses, models, multiple, variant="limited"))
        row = [f"{multiple} L", _percent(full)]
        for change in (sliding, limited):
            row += [_percent(change), _share(change, full)]
        for length in PAPER_LENGTHS:
            row.append(_percent(_paper_change(length, multiple)))
        rows.append(row)
    headers = ["vs. L", "no overlap", f"S = {stride}", "share", "attention limited to L", "share"]
    headers += [f"paper, L = {length}" for length in PAPER_LENGTHS]
    paper = _paper_change(PAPER_LENGTHS[0], 4)
    assert paper is not None
    sections = ["### How much of ALiBi's decrease comes from longer context"]
    sections += [TEXT.format(stride=stride), markdown.table(headers, rows)]
    sections.append(PAPER_DIFFERS.format(length=PAPER_LENGTHS[0], change=percent(paper)))
    return sections


def context_gain_by_budget(sets: Iterable[ModelSet]) -> list[str]:
    """Return a table of ALiBi's changes at 4 L in several sets of models; empty without any."""
    rows = []
    for folder, models in sets:
        losses = load_losses(folder)
        full = _estimate(losses, models, 4)
        sliding = _estimate(losses, models, 4, stride=models.train_length // 8)
        limited = None
        keys = models.key("alibi", 4, variant="limited"), models.key("alibi", 4)
        if all(key in losses for key in keys):
            limited = estimate_change(losses[keys[0]], losses[keys[1]])
        if full is None:
            continue
        row = _describe(folder, models)
        for estimate in (full, sliding, limited):
            row += estimate_cells(estimate)[:2]
        rows.append(row)
    if not rows:
        return []
    headers = ["parameters", "tokens", "text", "L", "4 L vs. L, no overlap", "95% interval"]
    headers += ["4 L vs. L, S = L/8", "95% interval"]
    headers += ["attention limited to L vs. unlimited", "95% interval"]
    title = "### The same changes in other sets of models"
    return [title, BY_BUDGET, markdown.table(headers, rows, left=0)]


def _describe(folder: Path, models: StudiedModels) -> list[str]:
    """Return the size, tokens, text, and training length of the ALiBi models of a set."""
    wanted = (models.corpus, "alibi", models.train_length)
    for model in finished_models(folder):
        if model.model == wanted:
            last = last_validation(model)
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
    short = models.key("alibi", 1, stride)
    if longer not in losses or short not in losses:
        return None
    return estimate_change(losses[longer], losses[short])


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
