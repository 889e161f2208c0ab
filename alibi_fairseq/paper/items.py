"""The paper's tables and figures, and how they are shown, as ``results/paper/index.csv`` says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from ..errors import UserInputError
from . import published
from .published import PrintedMeasurement

#: Drawing of a figure without numbers.
DIAGRAM = "diagram"
#: Why an item whose numbers are no perplexities has no runs.
_SPEED = (
    "It shows speed and memory of untrained models of the paper's size. Run "
    "`python -m benchmarks.methods` on a GPU to measure them, and pass its results to "
    "`alibi-fairseq report`."
)


@dataclass(frozen=True)
class Item:
    """Table or figure of the paper.

    Attributes:
        key: its key in ``index.csv``, such as ``table05``.
        name: its name in the paper, such as ``Table 5``.
        corpus: corpus of its models.
        subset: split of its perplexities; empty for speeds.
        content: what it shows.
        numbers: items whose CSV files have its numbers.
        methods: names in tables of the position methods that it shows (default: all).
        by_method: True if all models of a method except ALiBi share a row, in which each is
            evaluated at its training length.
        drawing: how a figure is drawn, one of :data:`.figures.DRAWINGS`; empty for a table.
        panel_per_length: True if a figure has a panel for each training length.
        after: table that a figure follows in the report.
    """

    key: str
    name: str
    corpus: str
    subset: str
    content: str
    numbers: tuple[str, ...]
    methods: tuple[str, ...]
    by_method: bool
    drawing: str
    panel_per_length: bool
    after: str

    @property
    def title(self) -> str:
        """Name, corpus, and content."""
        return f"{self.name}. {self.corpus}: {self.content}"

    @property
    def is_table(self) -> bool:
        """True for a table, False for a figure."""
        return not self.drawing

    @property
    def has_splits(self) -> bool:
        """True if its columns are the validation and the test split, instead of lengths."""
        return self.subset == "valid and test"

    @property
    def measurements(self) -> list[PrintedMeasurement]:
        """Its perplexities, without models by other authors."""
        return [each for each in self.all_measurements if each.method is not None]

    @property
    def all_measurements(self) -> list[PrintedMeasurement]:
        """Its perplexities."""
        shown = []
        for item in self.numbers:
            for measurement in published.measurements(item):
                if not self.methods or measurement.method_name in self.methods:
                    shown.append(measurement)
        return shown


@cache
def items() -> dict[str, Item]:
    """Return the paper's tables, then its figures, by key."""
    return {row["item"]: _make_item(row) for row in published.rows("index")}


def _make_item(row: Mapping[str, Any]) -> Item:
    """Create the item of a row of ``index.csv``."""
    numbers = (row["numbers"] or row["item"]).split()
    if row["drawing"] == DIAGRAM:
        numbers = []
    return Item(
        key=row["item"],
        name=row["name"],
        corpus=row["corpus"] or "",
        subset=row["subset"] or "",
        content=row["content"],
        numbers=tuple(numbers),
        methods=tuple(row["methods"].split("/")) if row["methods"] else (),
        by_method=row["rows"] == "method",
        drawing=row["drawing"] or "",
        panel_per_length=row["panels"] == "train_length",
        after=row["after"] or "",
    )


def trained_items() -> tuple[str, ...]:
    """Return the items with perplexities of trained models, in the paper's order."""
    return tuple(key for key, item in items().items() if item.measurements)


def find_items(name: str) -> tuple[str, ...]:
    """Parse ``table5``, ``figure1``, or ``all`` into items of the paper, e.g. ``("table05",)``."""
    trained = trained_items()
    if name == "all":
        return trained
    key = re.sub(r"^(table|figure)(\d)$", r"\g<1>0\2", name.lower())
    if key in trained:
        return (key,)
    if key in items():
        item = items()[key]
        reason = _SPEED if item.numbers else f"It is {item.content} and contains no data."
        raise UserInputError(f"{item.name} requires no training. {reason}")
    choices = ", ".join(key.replace("e0", "e") for key in trained)
    raise UserInputError(
        f"'{name}' is not a trained table or figure. Choose from {choices}, or all."
    )
