"""The paper's tables and digitised figures as data (``results/paper/``, one CSV each)."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from alibi_fairseq.errors import BadInput
from alibi_fairseq.results.points import Point

_PACKAGE = Path(__file__).resolve().parent.parent
# In a checkout, and as package data where pip put it (setup.py copies the first to the second).
_FOLDERS = (_PACKAGE.parent / "results" / "paper", _PACKAGE / "paper_data")

# A run counts as the paper's setting from this share of its updates on: the best checkpoint is
# seldom the last one.
_LEAST_SHARE_OF_UPDATES = 0.85

# The paper rounds the sizes of its texts: "29K", "about 700M tokens", "2.9 GB" (10^9 or 2^30 bytes).
_SIZES = {
    "vocabulary": ("entries in the vocabulary", 0.05),
    "train_tokens": ("tokens", 0.05),
    "train_bytes": ("bytes of text", 0.1),
}

# Options whose change leaves the model the same.
_HARMLESS_OVERRIDES = {"attention_backend"}

OUT_OF_MEMORY = "OOM"


@dataclass(frozen=True)
class Noise:
    """How far apart runs that differ in nothing but the seed are, in perplexity.

    ``spread`` is one standard deviation, ``range`` the largest gap among five seeds (None where
    none was reported), ``highest`` the perplexity up to which they apply: twice the one
    they were measured at, so that they do not judge models that fail to extrapolate.
    """

    spread: float
    range: float | None
    highest: float

    def verdict(self, ours: float, printed: float) -> str:
        """``=`` within one standard deviation, ``~`` within the range of seeds, ``≠`` outside.

        Empty where the noise is not known.
        """
        if printed > self.highest:
            return ""
        difference = round(abs(ours - printed), 2)  # the paper's numbers have two decimals
        if difference <= self.spread:
            return "="
        return "~" if self.range is not None and difference <= self.range else "≠"


def folder() -> Path:
    """Where the CSV files are.

    Raises:
        BadInput: this installation lacks them.
    """
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


def noise(corpus: str, train_length: int) -> Noise | None:
    """The noise of a corpus: measured at this training length, else the largest known; or None."""
    known = [row for row in rows("noise") if row["corpus"] == corpus]
    deviations = [row for row in known if row["statistic"] == "standard_deviation"]
    if not deviations:
        return None
    largest = max(deviations, key=lambda row: row["perplexity"])
    row = next((row for row in deviations if row["train_length"] == train_length), largest)
    ranges = [row["perplexity"] for row in known if row["statistic"] == "range"]
    return Noise(row["perplexity"], max(ranges, default=None), 2 * row["measured_at_perplexity"])


def why_other_text(corpus: str, text: dict | None) -> str | None:
    """Why perplexities on a text are in other units than the paper's; None where they are not.

    Args:
        text: ``provenance.text`` of the results.
    """
    setting = settings(corpus)
    if setting is None or setting["vocabulary"] is None:
        return None
    if text is None:
        return "the results do not say how the text was tokenised"
    if text["tokenizer"] != setting["tokenizer"]:
        return f"the tokeniser is {text['tokenizer']}, the paper's {setting['tokenizer']}"
    for key, (name, tolerance) in _SIZES.items():
        found = text.get(key)
        if found is None:
            return f"the results do not say how many {name} there are"
        if abs(found - setting[key]) > tolerance * setting[key]:
            return f"{found:,} {name} here, about {setting[key]:,} in the paper"
    return None


def why_not_comparable(corpus: str, point: Point) -> str | None:
    """Why a measured point must not stand beside the paper's numbers; None when it may."""
    setting = settings(corpus)
    if setting is None:
        return f"{corpus} is not a corpus of the paper"
    if point.model != setting["model"]:
        return f"the paper's model on {corpus} is {setting['model']}"
    if set(json.loads(point.model_overrides or "{}")) - _HARMLESS_OVERRIDES:
        return "options of the model were changed for the evaluation"
    if setting["updates"] is None:
        return None
    if point.updates is None:
        return "the number of updates is not recorded"
    if point.updates < _LEAST_SHARE_OF_UPDATES * setting["updates"]:
        return f"the paper trains for {setting['updates']:,} updates"
    return None
