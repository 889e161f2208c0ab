"""Progress bars, which are lines of a log if stderr is not a terminal."""

from __future__ import annotations

import sys
from typing import TextIO

from tqdm import tqdm


def make_progress_bar(total: float | None, description: str, unit: str = "B", **options) -> tqdm:
    """Return a progress bar on stderr with rate and remaining time.

    If stderr is not a terminal, the bar prints a line every 15 seconds.

    Args:
        total: number of units. None: unknown.
        description: text at the beginning of the bar.
        unit: name of a unit.
        options: further arguments of tqdm.
    """
    options.setdefault("unit_scale", True)
    if sys.stderr.isatty():
        options.setdefault("mininterval", 0.5)
        options.setdefault("dynamic_ncols", True)
    else:
        options.setdefault("mininterval", 15)
        options.setdefault("file", _LineLog(sys.stderr))
        options.setdefault("position", 0)  # tqdm moves the cursor to bars at other positions
    return tqdm(total=total, desc=description, unit=unit, **options)


class _LineLog:
    """Log that gives each state of a progress bar a separate line, without carriage returns."""

    def __init__(self, stream: TextIO):
        self.stream = stream

    def write(self, text: str) -> None:
        line = text.strip("\r\n ")
        if line:
            self.stream.write(line + "\n")

    def flush(self) -> None:
        self.stream.flush()
