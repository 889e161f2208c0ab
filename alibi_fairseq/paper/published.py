"""The paper's tables and digitized figures as data (``results/paper/``, one CSV file each)."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ..positions.spec import MethodSpec
from ..reporting.markdown import NOTHING
from ..reporting.rows import Point, model_label
from ..results.case import Case
from . import packaged_folder

FOLDER = packaged_folder("results/paper", "paper_data")
OUT_OF_MEMORY = "OOM"
SPLITS = ("valid", "test")


@dataclass(frozen=True)
class PrintedMeasurement:
    """Perplexity of a model in a table or figure.

    Attributes:
        corpus: corpus of the model.
        method: position method of the model; None for a model by other authors.
        updates: update count of the model, where the item gives it.
        perplexity: perplexity as printed. None: the paper's run failed, or it is not printed.
        status: text in place of a missing perplexity.
        words_per_second: speed of the evaluation.
        author_model: name of a model by other authors.
    """

    corpus: str
    method: MethodSpec | None
    train_length: int
    length: int
    stride: int
    subset: str
    perplexity: float | None
    updates: int | None = None
    status: str = ""
    words_per_second: float | None = None
    author_model: str = ""

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
        setting = setting_of(self.corpus)
        assert setting is not None, "a corpus of the paper"
        planned = setting["updates"]
        if self.updates is None or planned in (None, self.updates):
            return name
        return f"{name}, {self.updates / planned:.1%} trained"

    @property
    def nonoverlapping(self) -> bool:
        """True if every window scores all of its tokens."""
        return self.stride == self.length


@dataclass(frozen=True)
class PrintedPoint(Point):
    """Number of the paper in a table or figure, without results.

    Attributes:
        train_length: training length of the model.
        printed: perplexity as printed. None: the paper's run failed.
        words_per_second: speed of the evaluation.
    """

    train_length: int = 0
    printed: float | None = None
    words_per_second: float | None = None

    @property
    def perplexity(self) -> float | None:
        """Perplexity as printed."""
        return self.printed


def point_of(measurement: PrintedMeasurement) -> PrintedPoint:
    """Return a measurement of the paper as a point of a row."""
    case = Case("text", None, measurement.subset, measurement.length, measurement.stride)
    return PrintedPoint(
        case,
        (),
        measurement.status,
        train_length=measurement.train_length,
        printed=measurement.perplexity,
        words_per_second=measurement.words_per_second,
    )


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


def setting_of(corpus: str | None) -> dict | None:
    """Return the paper's model and update count on a corpus, or None for other corpora."""
    by_corpus = {row["corpus"]: row for row in rows("settings")}
    return by_corpus.get(str(corpus))


def model(corpus: str) -> str:
    """Return the name of the model that the paper trains on one of its corpora."""
    setting = setting_of(corpus)
    assert setting is not None, f"{corpus} is not a corpus of the paper"
    return setting["model"]


@cache
def measurements(item: str) -> tuple[PrintedMeasurement, ...]:
    """Return the perplexities of a CSV file such as ``table05``."""
    (declared,) = [row for row in rows("index") if row["item"] == item]
    printed = []
    for row in rows(item):
        for column, perplexity in row.items():
            if column.endswith("perplexity"):
                prefix = column.removesuffix("perplexity").rstrip("_")
                printed.append(_measurement(declared, row, prefix, perplexity))
    return tuple(printed)


def _measurement(
    item: dict, row: dict, prefix: str, perplexity: float | str | None
) -> PrintedMeasurement:
    """Create the measurement of one column.

    Args:
        item: row of the table or figure in ``index.csv``.
        row: all columns of the row.
        prefix: beginning of the column's name: a split, a position method, or nothing. In Tables
            2–4, a row is an evaluation length and has a column per position method. In all others,
            a row is a model.
        perplexity: value of the column, a number, ``OOM``, or None.
    """
    is_model_row = prefix in ("", *SPLITS)
    if is_model_row:
        method = row["position_method"]
        train_length = row["train_length"]
        stride = row["stride"]
        speed = row.get("eval_words_per_second")
    else:
        method = prefix
        # The first evaluation length of Tables 2–4 is the training length.
        train_length = rows(item["item"])[0]["length"]
        stride = row["length"]
        speed = row.get(f"{prefix}_words_per_second")
    status = ""
    if perplexity is None:
        status = NOTHING
    elif perplexity == OUT_OF_MEMORY:
        perplexity = None
        status = OUT_OF_MEMORY
    return PrintedMeasurement(
        corpus=item["corpus"],
        method=MethodSpec.plain(method) if method else None,
        train_length=train_length,
        length=row["length"],
        stride=stride,
        subset=prefix if prefix in SPLITS else item["subset"],
        perplexity=perplexity,  # type: ignore[arg-type]
        updates=row.get("updates"),
        status=status,
        words_per_second=speed,
        author_model=row.get("model") or "",
    )
