"""Table of the outcomes of checks."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ..reporting.table import Column, Table
from .candidate import HEAD_DIM, HEADS, LONG, TRAIN_LENGTH
from .checks import BF16_LENGTH, CHECKS, Outcome

CAPTION = "Checks of position methods on models with random weights"


def outcomes_table(outcomes: dict[str, dict[str, Outcome]], device: torch.device) -> Table[str]:
    """Return a table with a row per method.

    Args:
        outcomes: outcome by method and by check.
        device: device of the models.
    """
    columns = [Column[str]("method", str)]
    for check in CHECKS:
        columns.append(Column(check, _format_outcome(outcomes, check)))
    return Table(
        columns,
        list(outcomes),
        left=1 + len(CHECKS),
        caption=CAPTION,
        notes=[legend(device), *method_notes(outcomes)],
    )


def _format_outcome(outcomes: dict[str, dict[str, Outcome]], check: str) -> Callable[[str], str]:
    """Return the function that formats the outcome of a check of a method."""
    return lambda method: outcomes[method][check].cell


def legend(device: torch.device) -> str:
    """Return the meaning of the columns."""
    version = torch.__version__.partition("+")[0]
    return (
        "Numbers are the largest difference between two results that must agree, relative to the "
        "largest value: decoding with cached keys and the full pass; the bias of blocks of queries "
        f"and of all queries; scores in bf16 and fp32 at {BF16_LENGTH} tokens; rows padded on the "
        "left and the rows alone; documents in one window and the documents alone. Grouped heads: "
        f"a model with {HEADS // 2} key and value heads has finite scores. Backends: those that "
        "compute the attention, each in agreement with eager. –: does not apply. The models "
        f"have at least 2 layers, {HEADS} heads, width {HEADS * HEAD_DIM}, and a training length "
        f"of {TRAIN_LENGTH} tokens; texts have {LONG} tokens where the method allows it. Options "
        "that a row does not name have their defaults: --methods METHOD/OPTION=VALUE checks other "
        "values. PyTorch "
        f"{version}, {device.type}."
    )


def method_notes(outcomes: dict[str, dict[str, Outcome]]) -> list[str]:
    """Return the notes on each method, each of which may concern several checks."""
    notes = []
    for method, by_check in outcomes.items():
        checks: dict[str, list[str]] = {}
        for check, outcome in by_check.items():
            if outcome.note:
                checks.setdefault(outcome.note, []).append(check)
        for note, names in checks.items():
            notes.append(f"{method}, {', '.join(names)}: {note}")
    return notes
