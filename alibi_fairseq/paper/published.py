"""The paper's tables and digitised figures as data (``results/paper/``, one CSV each)."""

from __future__ import annotations

import csv
import re
from functools import cache

from alibi_fairseq.paper import data_folder
from alibi_fairseq.results.measurements import Measurement

FOLDER = data_folder("results/paper", "paper_data")
OUT_OF_MEMORY = "OOM"


@cache
def rows(item: str) -> tuple[dict, ...]:
    """The lines of one CSV, e.g. ``table05``, with numbers as numbers and None where empty."""
    with open(FOLDER / f"{item}.csv", encoding="utf-8", newline="") as stream:
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


@cache
def points(item: str) -> tuple[Measurement, ...]:
    """The perplexities of a table or figure; rows about other people's models are left out."""
    found: list[Measurement] = []
    for row in rows(item):
        for column, perplexity in row.items():
            name, is_perplexity, _ = column.partition("perplexity")
            kind = name.rstrip(
                "_"
            )  # the split, or in Tables 2–4, which have L in the first row, the method
            of_method = kind not in ("", "valid", "test")
            method = kind if of_method else row.get("position_method")
            if not is_perplexity or not method:
                continue
            failed = perplexity == OUT_OF_MEMORY
            speed = f"{kind}_words_per_second" if of_method else "eval_words_per_second"
            found.append(
                Measurement(
                    position_method=method,
                    train_length=rows(item)[0]["length"] if of_method else row["train_length"],
                    length=row["length"],
                    stride=row["length" if of_method else "stride"],
                    subset=about(item)["subset"] if of_method or not kind else kind,
                    perplexity=None if failed else perplexity,
                    updates=row.get("updates"),
                    tokens_per_second_batch_1=row.get(speed),
                    status=OUT_OF_MEMORY if failed else "",
                )
            )
    return tuple(found)
