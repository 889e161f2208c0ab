"""``--hours``: which cells fit, from one update and two windows of every model measured here."""

from __future__ import annotations

from collections.abc import Sequence

from tqdm import tqdm

from ..compare.budget import PLANNED
from ..reproduce.estimate import STARTUP, Timing, duration, measure_command, one_thread
from .data import VALID, document_starts
from .engine import StudyCell


def fitting(cells: Sequence[StudyCell], hours: float, parallel: int) -> list[StudyCell]:
    """The cells that fit, in their order; prints what fits and what is left out.

    A cell that does not fit is left out, and less important ones that still fit are taken.
    """
    left = hours * 3600 * PLANNED * parallel
    taken, left_out, known = [], [], {}
    with one_thread():
        for cell in tqdm(cells, desc="measuring the speed", unit="model", dynamic_ncols=True):
            key = cell.key
            model = (key.corpus, key.method, key.train_length)
            if model not in known:
                known[model] = seconds_of(cell, measure(cell))
            if known[model] <= left:
                taken.append(cell)
                left -= known[model]
            else:
                left_out.append(cell)
    names = ", ".join(cell.key.name for cell in left_out)
    needed = sum(known[c.key.corpus, c.key.method, c.key.train_length] for c in left_out)
    planned = hours * 3600 * PLANNED * parallel - left
    print(f"{len(taken)} of {len(cells)} models fit: {duration(planned / parallel)}.", flush=True)
    if left_out:
        print(f"Left out, for another {duration(needed / parallel)}: {names}.", flush=True)
    return taken


def measure(cell: StudyCell) -> Timing:
    """Time an update, and forward passes at the shortest and the longest length."""
    length, lengths = cell.key.train_length, cell.tests["lengths"]
    sequences = cell.model.comparison.tokens_per_update // length
    return measure_command(
        cell.model.train_command.words, sequences, length, (min(lengths), max(lengths))
    )


def seconds_of(cell: StudyCell, timing: Timing) -> float:
    """Of training and evaluation."""
    what, tests = cell.model.comparison, cell.tests
    starts = document_starts(cell.model.data)
    tokens = (cell.model.data / "test.bin").stat().st_size // 2
    variants = 2 if tests["variant"] else 1
    evaluated = variants * sum(tokens * timing.token(length) for length in tests["lengths"])
    slides = len(starts) * tests["sliding_tokens"]
    evaluated += sum(slides * length * timing.token(length) for length in tests["sliding"])
    validations = (2 + what.updates // 100) * VALID * timing.token(cell.key.train_length)
    return what.updates * timing.update + validations + evaluated + 2 * STARTUP
