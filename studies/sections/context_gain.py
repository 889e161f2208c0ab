"""How much of ALiBi's decrease in longer windows comes from longer context.

In longer windows without overlap, fewer tokens have little context (the early token curse). A small
stride removes this effect, and limited attention removes most of the longer context instead.
"""

from __future__ import annotations

from collections.abc import Iterable

from alibi_fairseq.reporting import markdown

from ..analysis.compared_models import SLIDING, ComparedLosses, ComparedModels
from ..analysis.paper_changes import table15_change
from ..analysis.study_results import StudyResults
from .changes import change_cells, change_in_words, percent_cell
from .templates import section

#: Training lengths of the paper's Table 15.
PAPER_LENGTHS = (512, 1024)


def context_gain_section(losses: ComparedLosses) -> str:
    """Return the table of ALiBi's changes from L; empty without its evaluations at L.

    Attention limited to L tokens is the same as unlimited attention at L.
    """
    if losses.find("alibi-1@1") is None:
        return ""
    stride = losses.models.sliding_stride
    headers = ["vs. L", "no overlap", f"S = {stride}", "share", "attention limited to L", "share"]
    headers += [f"paper, L = {length}" for length in PAPER_LENGTHS]
    rows = []
    for multiple in (2, 4, 16):
        full = _nats(losses, f"alibi-1@{multiple}", "alibi-1@1")
        sliding = _nats(losses, f"alibi-1@{multiple}{SLIDING}", f"alibi-1@1{SLIDING}")
        limited = _nats(losses, f"alibi-1@{multiple}:limited", "alibi-1@1")
        row = [f"{multiple} L", percent_cell(full)]
        row += [percent_cell(sliding), _share(sliding, full)]
        row += [percent_cell(limited), _share(limited, full)]
        for length in PAPER_LENGTHS:
            row.append(percent_cell(table15_change(length, multiple)))
        rows.append(row)
    paper_change = table15_change(PAPER_LENGTHS[0], 4)
    assert paper_change is not None, "Table 15 has both lengths"
    return section(
        "context_gain",
        stride=stride,
        changes=markdown.table(headers, rows),
        paper_length=PAPER_LENGTHS[0],
        paper_change=change_in_words(paper_change),
    )


def context_gain_by_budget(sets: Iterable[tuple[StudyResults, ComparedModels]]) -> str:
    """Return a table of ALiBi's changes at 4 L in several sets of models; empty without any.

    Args:
        sets: results and models of each set.
    """
    headers = ["parameters", "tokens", "text", "L"]
    headers += ["4 L vs. L, no overlap", "95% interval", "4 L vs. L, S = L/8", "95% interval"]
    headers += ["attention limited to L vs. unlimited", "95% interval"]
    rows = []
    for study, models in sets:
        losses = ComparedLosses(models, study.losses)
        full = losses.change("alibi-1@4", "alibi-1@1")
        if full is None:
            continue
        last = study.alibi_model(models).last_validation
        parameters = f"{(last.series.facts.parameters or 0) / 1e6:.3g}M"
        tokens = f"{(last.cost.trained_tokens or 0) / 1e6:.3g}M"
        row = [parameters, tokens, models.corpus, str(models.train_length), *change_cells(full)]
        row += change_cells(losses.change(f"alibi-1@4{SLIDING}", f"alibi-1@1{SLIDING}"))
        row += change_cells(losses.change("alibi-1@4:limited", "alibi-1@4"))
        rows.append(row)
    if not rows:
        return ""
    return section("context_gain_by_budget", changes=markdown.table(headers, rows, left=0))


def _nats(losses: ComparedLosses, first: str, second: str) -> float | None:
    """Return the change from the second to the first evaluation; None if it is not known."""
    estimate = losses.change(first, second)
    return None if estimate is None else estimate.value


def _share(part: float | None, whole: float | None) -> str:
    """Return what percentage of a decrease a part is; a dash without a decrease."""
    if part is None or whole is None or whole >= 0:
        return markdown.NOTHING
    return f"{100 * part / whole:.0f}%"
