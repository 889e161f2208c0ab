"""Changes of perplexity of the secondary models that the page estimates, by group."""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from ..losses import EvaluationKey
from ..primary_tests import StudiedModels

#: Text of the articles.
CORPUS = "wikipedia"
#: Models of the six tests.
MODELS = StudiedModels(CORPUS, train_length=128, baseline="share")
#: Description and evaluations of each change (:meth:`.EvaluationKey.parse`). A group is a table,
#: whose slot on the page has its name.
CHANGES = Path(__file__).with_name("changes.csv")


class EstimatedChange(NamedTuple):
    """Change from the second to the first evaluation."""

    name: str
    first: EvaluationKey
    second: EvaluationKey


def read_groups() -> dict[str, list[EstimatedChange]]:
    """Return the changes of each group."""
    groups: dict[str, list[EstimatedChange]] = defaultdict(list)
    with CHANGES.open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream, strict=True):
            first = EvaluationKey.parse(row["first"], CORPUS)
            second = EvaluationKey.parse(row["second"], CORPUS)
            groups[row["group"]].append(EstimatedChange(row["name"], first, second))
    return groups
