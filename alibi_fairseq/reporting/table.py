"""Table of texts, which :mod:`.markdown` and :mod:`.latex` format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """Table of texts.

    Attributes:
        headers: one text per column.
        rows: rows of one text per column.
        left: number of columns that are left-aligned; the others are right-aligned.
        caption: caption, without a period.
        conditions: what holds for all rows, without a period.
        warning: why the rows may say nothing, without a period.
        notes: sentences below the table.
    """

    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: int = 1
    caption: str = ""
    conditions: str = ""
    warning: str = ""
    notes: Sequence[str] = ()
