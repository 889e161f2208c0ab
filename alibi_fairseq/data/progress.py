"""Progress bars."""

from __future__ import annotations

import sys

from tqdm import tqdm


def progress(total: float | None, what: str, unit: str = "B") -> tqdm:
    """A bar on stderr with rate and remaining time; updated rarely if stderr is a log file.

    Args:
        total: number of units; None if unknown.
        what: the step, in a word or two.
        unit: ``B`` counts bytes; anything else is a plain count.
    """
    interval = 0.5 if sys.stderr.isatty() else 15
    return tqdm(total=total, desc=what, unit=unit, unit_scale=True, mininterval=interval)
