"""Progress bars."""

from __future__ import annotations

import json
import sys

from tqdm import tqdm


def progress(total: float | None, what: str, unit: str = "B") -> tqdm:
    """A bar on stderr with rate and remaining time; updated rarely if stderr is a log file.

    Args:
        total: in units; None if unknown.
        what: the step, in a word or two.
        unit: ``B`` counts bytes; anything else is a plain count.
    """
    interval = 0.5 if sys.stderr.isatty() else 15
    return tqdm(total=total, desc=what, unit=unit, unit_scale=True, mininterval=interval)


class TrainingProgress:
    """A bar that follows the output of ``fairseq-train --log-format json``."""

    def __init__(self, title: str, updates: int):
        self.bar = tqdm(total=updates, desc=title, unit="update", dynamic_ncols=True)

    def see(self, line: str) -> None:
        """Advance the bar if the line reports the number of updates."""
        _, brace, rest = line.partition("| train_inner | {")
        if not brace:
            return
        seen = json.loads("{" + rest)
        self.bar.update(int(seen["num_updates"]) - self.bar.n)
        self.bar.set_postfix_str(f"loss {seen['loss']} bits")

    def close(self) -> None:
        """Leave the bar as it is."""
        self.bar.close()
