"""Cost and lead: the two effects whose difference decides the claim of the paper's title.

Three models are evaluated at 4 L: ALiBi trained at L, ALiBi trained at 4 L, and sinusoidal
embeddings trained at 4 L. In log perplexity, short vs. long = cost - lead:

- cost: from ALiBi trained at 4 L to ALiBi trained at L. What does training short cost?
- lead: from ALiBi to sinusoidal embeddings, both trained at 4 L. What does ALiBi gain at equal
  length?
- short vs. long: from sinusoidal embeddings trained at 4 L to ALiBi trained at L. Does the claim
  hold? Test E6 asks whether this change is below zero.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from alibi_fairseq.paper import published
from alibi_fairseq.paper.items import items

from .compared_models import ComparedLosses
from .estimates import Estimate

#: Tables of the paper with ALiBi trained short and long and sinusoidal embeddings trained long, and
#: the column of the perplexity on the validation split. With S = 1, each method has its own table.
SOURCES = (
    (("table05",), "perplexity"),
    (("table07",), "valid_perplexity"),
    (("table13", "table15"), "perplexity"),
    (("table08",), "perplexity"),
    (("table10",), "valid_perplexity"),
    (("table12",), "perplexity"),
    (("table11",), "perplexity"),
)


class CostAndLead(NamedTuple):
    """The two effects and their difference."""

    cost: Estimate
    lead: Estimate
    short_vs_long: Estimate


def estimate_cost_and_lead(
    losses: ComparedLosses, short: int = 1, long: int = 4, stride: str = ""
) -> CostAndLead | None:
    """Estimate both effects and short vs. long; None while a model has fewer than two seeds.

    Args:
        losses: losses of the models.
        short: training length of the short model, in training lengths of the study.
        long: training length of the other models, and evaluation length of all.
        stride: :data:`.compared_models.SLIDING`, or empty without overlap.
    """
    alibi_short = f"alibi-{short}@{long}{stride}"
    alibi_long = f"alibi-{long}@{long}{stride}"
    sinusoidal_long = f"sinusoidal-{long}@{long}{stride}"
    cost = losses.change(alibi_short, alibi_long)
    lead = losses.change(sinusoidal_long, alibi_long)
    short_vs_long = losses.change(alibi_short, sinusoidal_long)
    if cost is None or lead is None or short_vs_long is None:
        return None
    return CostAndLead(cost, lead, short_vs_long)


@dataclass(frozen=True)
class PaperPair:
    """ALiBi trained short and sinusoidal embeddings trained long, both evaluated at the latter.

    Attributes:
        tables: the tables with the perplexities.
        stride: tokens scored per window; equal to ``long`` without overlap.
        short: training length of the short ALiBi model.
        long: training length of the other models, and evaluation length of all.
        alibi_short: perplexity of ALiBi trained short.
        alibi_long: perplexity of ALiBi trained long; None if the paper has none.
        sinusoidal_long: perplexity of sinusoidal embeddings trained long.
    """

    tables: tuple[str, ...]
    stride: int
    short: int
    long: int
    alibi_short: float
    alibi_long: float | None
    sinusoidal_long: float

    @property
    def cost(self) -> float | None:
        """What ALiBi loses by training short, in nats."""
        return None if self.alibi_long is None else math.log(self.alibi_short / self.alibi_long)

    @property
    def lead(self) -> float | None:
        """What ALiBi gains over sinusoidal embeddings at equal length, in nats."""
        return None if self.alibi_long is None else math.log(self.sinusoidal_long / self.alibi_long)

    @property
    def short_vs_long(self) -> float:
        """The change from sinusoidal embeddings trained long to ALiBi trained short, in nats."""
        return math.log(self.alibi_short / self.sinusoidal_long)

    @property
    def corpus(self) -> str:
        """The paper's text."""
        return items()[self.tables[0]].corpus

    @property
    def source(self) -> str:
        """Names of the tables, such as ``Tables 13 and 15``."""
        numbers = [str(int(table.removeprefix("table"))) for table in self.tables]
        return f"Table{'s' * (len(numbers) > 1)} {' and '.join(numbers)}"


@cache
def paper_pairs() -> tuple[PaperPair, ...]:
    """Return all pairs of a short and a longer training length in the paper's tables."""
    pairs = []
    for tables, column in SOURCES:
        alibi = {}
        sinusoidal = {}
        for table in tables:
            for row in published.rows(table):
                evaluation = (row["train_length"], row["length"], row["stride"])
                if row["position_method"] == "alibi":
                    alibi[evaluation] = row[column]
                elif row["position_method"] == "sinusoidal":
                    sinusoidal[evaluation] = row[column]
        of_source = []
        for (short, long, stride), perplexity in alibi.items():
            trained_long = (long, long, stride)
            if long is not None and short < long and trained_long in sinusoidal:
                pair = PaperPair(
                    tables=tables,
                    stride=stride,
                    short=short,
                    long=long,
                    alibi_short=perplexity,
                    alibi_long=alibi.get(trained_long),
                    sinusoidal_long=sinusoidal[trained_long],
                )
                of_source.append(pair)
        pairs += sorted(of_source, key=lambda pair: (pair.short, pair.long))
    return tuple(pairs)


def table5_pairs() -> list[PaperPair]:
    """Return the pairs of Table 5."""
    return [pair for pair in paper_pairs() if pair.tables == ("table05",)]


def table5_pair(short: int, long: int) -> PaperPair | None:
    """Return a pair of Table 5, or None if the table does not have it."""
    for pair in table5_pairs():
        if (pair.short, pair.long) == (short, long):
            return pair
    return None
