"""Progress bars."""

from __future__ import annotations

import sys
from typing import TextIO

from tqdm import tqdm


class LogFile:
    """A log in which each state of a bar is a line of its own.

    On a terminal a bar overwrites itself with carriage returns.
    """

    def __init__(self, stream: TextIO):
        self.stream = stream

    def write(self, text: str) -> None:
        if line := text.strip("\r\n "):
            self.stream.write(line + "\n")

    def flush(self) -> None:
        self.stream.flush()


def progress(total: float | None, what: str, unit: str = "B", **more) -> tqdm:
    """A bar on stderr with rate and remaining time; a line every 15 seconds if stderr is a log.

    Args:
        total: number of units; None if unknown.
        what: the step, in a word or two.
        unit: ``B`` counts bytes; anything else is a plain count.
        more: as for tqdm.
    """
    if sys.stderr.isatty():
        kind: dict = {"mininterval": 0.5, "dynamic_ncols": True}
    else:
        kind = {"mininterval": 15, "file": LogFile(sys.stderr)}
    return tqdm(total=total, desc=what, unit=unit, **{"unit_scale": True, **kind, **more})
