"""The paper's tables and digitized figures as data (``results/paper/``, one CSV file each)."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ..positions.spec import MethodSpec
from ..reporting.markdown import NOTHING
from ..reporting.row import Point, model_label
from ..results.case import Case
from ..results.result import Result
from . import packaged_folder

FOLDER = packaged_folder("results/paper", "paper_data")
OUT_OF_MEMORY = "OOM"
SPLITS = ("valid", "test")


@dataclass(frozen=True, kw_only=True)
class PrintedMeasurement(Point):
    """Perplexity of a model in a table or figure of the paper, a point without results.

    Attributes:
        corpus: corpus of the model.
        method: position method of the model; None for a model by other authors.
        train_length: training length of the model.
        printed: perplexity as printed. None: the paper's run failed, or it is not printed.
        updates: update count of the model, where the item gives it.
        words_per_second: speed of the evaluation.
        author_model: name of a model by other authors.
    """

    results: Sequence[Result] = ()
    corpus: str
    method: MethodSpec | None
    train_length: int
    printed: float | None
    updates: int | None = None
    words_per_second: float | None = None
    author_model: str = ""

    @property
    def perplexity(self) -> float | None:
        """Perplexity as printed."""
        return self.printed

    @property
    def method_name(self) -> str:
        """Name of the position method in tables; empty for a model by other authors."""
        return "" if self.method is None else self.method.label

    @property
    def label(self) -> str:
        """Name of the model: ``ALiBi, L=512``, or ``ALiBi, L=512, 20.0% trained``."""
        if self.method is None:
            return f"{self.author_model} (as printed)"
        name = model_label(self.method_name, self.train_length)
        setting = paper_setting(self.corpus)
        assert setting is not None, "a corpus of the paper"
        planned = setting["updates"]
        if self.updates is None or planned in (None, self.updates):
            return name
        return f"{name}, {self.updates / planned:.1%} trained"


@cache
def rows(item: str) -> tuple[dict, ...]:
    """Return the rows of a CSV file such as ``table05``, with parsed numbers and None if empty."""
    return read_rows(FOLDER / f"{item}.csv")


def read_rows(path: Path) -> tuple[dict, ...]:
    """Return the rows of a CSV file with parsed numbers and None if empty."""
    parsed = []
    with path.open(encoding="utf-8", newline="") as stream:
        for line in csv.DictReader(stream, strict=True):
            parsed.append({column: _value(text) for column, text in line.items()})
    return tuple(parsed)


def _value(text: str) -> int | float | str | None:
    """Parse an integer or a float. Other texts are returned as they are, and None if empty."""
    if re.fullmatch(r"\d+", text):
        return int(text)
    if re.fullmatch(r"\d+\.\d+", text):
        return float(text)
    return text or None


def notes(item: str) -> list[str]:
    """Return the caveats of a comparison with a table or figure."""
    return [row["note"] for row in rows("notes") if row["item"] == item]


def paper_setting(corpus: str | None) -> dict | None:
    """Return the paper's model and update count on a corpus, or None for other corpora."""
    by_corpus = {row["corpus"]: row for row in rows("settings")}
    return by_corpus.get(str(corpus))


@cache
def measurements(item: str) -> tuple[PrintedMeasurement, ...]:
    """Return the perplexities of a CSV file such as ``table05``, of which each row is a model."""
    (declared,) = [row for row in rows("index") if row["item"] == item]
    printed = []
    for row in rows(item):
        if "perplexity" in row:
            printed.append(_measurement(row, row["perplexity"], declared["subset"], declared))
        for split in SPLITS:
            column = f"{split}_perplexity"
            if column in row:
                printed.append(_measurement(row, row[column], split, declared))
    return tuple(printed)


def _measurement(
    row: dict, perplexity: float | str | None, split: str, item: dict
) -> PrintedMeasurement:
    """Create the measurement of a model on a split.

    Args:
        row: the model's row.
        perplexity: number, ``OOM``, or None.
        split: name of the split.
        item: row of the table or figure in ``index.csv``.
    """
    status = ""
    if perplexity is None:
        status = NOTHING
    elif perplexity == OUT_OF_MEMORY:
        perplexity = None
        status = OUT_OF_MEMORY
    method = row["position_method"]
    # Of models by other authors, neither lengths nor strides are known.
    case = Case("text", None, split, row["length"] or 1, row["stride"] or 1)
    return PrintedMeasurement(
        case=case,
        status=status,
        corpus=item["corpus"],
        method=MethodSpec.plain(method) if method else None,
        train_length=row["train_length"],
        printed=perplexity,  # type: ignore[arg-type]
        updates=row.get("updates"),
        words_per_second=row.get("eval_words_per_second"),
        author_model=row.get("model") or "",
    )
