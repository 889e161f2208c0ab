"""The paper's tables and digitised figures as data (``results/paper/``, one CSV each)."""

from __future__ import annotations

import csv
import re
from functools import cache
from pathlib import Path

from alibi_fairseq.errors import BadInput
from alibi_fairseq.results.points import Point

_PACKAGE = Path(__file__).resolve().parent.parent
# In a checkout, and as package data where pip put it (setup.py copies the first to the second).
_FOLDERS = (_PACKAGE.parent / "results" / "paper", _PACKAGE / "paper_data")

OUT_OF_MEMORY = "OOM"


def folder() -> Path:
    """Where the CSV files are."""
    for place in _FOLDERS:
        if (place / "index.csv").is_file():
            return place
    raise BadInput("The paper's tables (results/paper) are not installed; reinstall alibi-fairseq.")


@cache
def rows(item: str) -> tuple[dict, ...]:
    """The lines of one CSV, e.g. ``table05``, with numbers as numbers and None where empty."""
    with open(folder() / f"{item}.csv", encoding="utf-8", newline="") as stream:
        return tuple(
            {column: _value(text) for column, text in line.items()}
            for line in csv.DictReader(stream, strict=True)
        )


def _value(text: str) -> int | float | str | None:
    if re.fullmatch(r"\d+", text):
        return int(text)
    if re.fullmatch(r"\d+\.\d+", text):
        return float(text)
    return text or None


def about(item: str) -> dict:
    """The line of ``index.csv``: name, page, corpus, subset, content and source."""
    return next(row for row in rows("index") if row["item"] == item)


def notes(item: str) -> list[str]:
    """What to know before comparing with a table or figure."""
    return [row["note"] for row in rows("notes") if row["item"] == item]


def settings(corpus: str) -> dict | None:
    """The paper's model and number of updates on a corpus; None for other text."""
    return next((row for row in rows("settings") if row["corpus"] == corpus), None)


def model(corpus: str) -> str:
    """The name of the model that the paper trains on one of its corpora."""
    return next(row["model"] for row in rows("settings") if row["corpus"] == corpus)


def corpora() -> set[str]:
    """The names of the paper's corpora."""
    return {row["corpus"] for row in rows("settings")}


@cache
def points(item: str) -> tuple[Point, ...]:
    """The perplexities of a table or figure; rows about other people's models are left out."""
    subset = about(item)["subset"]
    found: list[Point] = []
    for row in rows(item):
        if "alibi_perplexity" in row:  # Tables 2–4: one column per method, L in the first row
            found += _sweep_points(item, row, subset)
        elif "valid_perplexity" in row:
            found += [
                _point(row, split, row[f"{split}_perplexity"])
                for split in ("valid", "test")
                if row["position_method"]
            ]
        elif "perplexity" in row:
            found.append(_point(row, subset, row["perplexity"]))
    return tuple(found)


def _point(row: dict, subset: str, perplexity: float) -> Point:
    return Point(
        position_method=row["position_method"],
        train_length=row["train_length"],
        length=row["length"],
        stride=row["stride"],
        subset=subset,
        perplexity=perplexity,
        updates=row.get("updates"),
        tokens_per_second_batch_1=row.get("eval_words_per_second"),
    )


def _sweep_points(item: str, row: dict, subset: str) -> list[Point]:
    methods = [column.removesuffix("_perplexity") for column in row if "_perplexity" in column]
    found = []
    for method in methods:
        perplexity = row[f"{method}_perplexity"]
        failed = perplexity == OUT_OF_MEMORY
        found.append(
            Point(
                position_method=method,
                train_length=rows(item)[0]["length"],
                length=row["length"],
                stride=row["length"],
                subset=subset,
                perplexity=None if failed else perplexity,
                tokens_per_second_batch_1=row[f"{method}_words_per_second"],
                status=OUT_OF_MEMORY if failed else "",
            )
        )
    return found
