"""Published perplexities at the training length, and their differences from ALiBi.

They tell how far a trained baseline is behind ALiBi. The sources are the ALiBi paper, and Haviv et
al. (arXiv 2203.16634, ``published_gaps.csv``).
"""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from alibi_fairseq.paper import published

#: Tables of the ALiBi paper with windows without overlap, and the text and size of their models.
PAPER_TABLES = (
    ("table05", "WikiText-103", "247M"),
    ("table08", "BookCorpus", "247M"),
    ("table12", "CC100+RoBERTa", "1.3B"),
)


@dataclass(frozen=True)
class PublishedModels:
    """Models of one text, size, and training length L, evaluated at L without overlap.

    Attributes:
        text: the text, with the authors.
        parameters: size of the models, as published.
        train_length: L.
        perplexity: by position method.
    """

    text: str
    parameters: str
    train_length: int
    perplexity: dict[str, float]

    def gap(self, method: str) -> float | None:
        """Return how far a method is behind ALiBi, in nats; None if it was not trained."""
        if method not in self.perplexity:
            return None
        return math.log(self.perplexity[method] / self.perplexity["alibi"])

    @property
    def recovered(self) -> float | None:
        """Share of ALiBi's gain over no positions that sinusoidal embeddings have."""
        none = self.gap("none")
        sinusoidal = self.gap("sinusoidal")
        if none is None or sinusoidal is None:
            return None
        return (none - sinusoidal) / none


@cache
def published_models() -> tuple[PublishedModels, ...]:
    """Return the published models, in the order of the sources."""
    models = []
    for table, text, parameters in PAPER_TABLES:
        by_length: dict[int, dict[str, float]] = defaultdict(dict)
        for row in published.rows(table):
            if row["length"] == row["train_length"]:
                by_length[row["train_length"]][row["position_method"]] = row["perplexity"]
        for length, perplexity in sorted(by_length.items()):
            models.append(PublishedModels(f"{text} (Press et al.)", parameters, length, perplexity))
    path = Path(__file__).with_name("published_gaps.csv")
    with path.open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            perplexity = {method: float(row[method]) for method in ("alibi", "sinusoidal", "none")}
            text = f"{row['text']} (Haviv et al.)"
            length = int(row["train_length"])
            models.append(PublishedModels(text, row["parameters"], length, perplexity))
    return tuple(models)


def published_gap_range() -> tuple[float, float]:
    """Return the smallest and the largest lead of ALiBi over sinusoidal embeddings, in nats."""
    gaps = [models.gap("sinusoidal") for models in published_models()]
    leads = [gap for gap in gaps if gap is not None]
    return min(leads), max(leads)
