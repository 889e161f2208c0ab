"""Cases and commands that several tests of invalid input share."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest


def mostly_slow(cases: Iterable[str], quick: int) -> list:
    """Mark all cases but the first ``quick`` ones as slow."""
    parameters: list = []
    for number, case in enumerate(cases):
        if number < quick:
            parameters.append(case)
        else:
            parameters.append(pytest.param(case, marks=pytest.mark.slow))
    return parameters


def eval_command(data: Path, checkpoint: Path, out: Path) -> list:
    """Return an ``eval`` command on the CPU."""
    flags = ["--path", checkpoint, "--lengths", 16, "--device", "cpu", "--out", out]
    return ["eval", data, *flags]
