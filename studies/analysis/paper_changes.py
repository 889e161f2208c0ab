"""Changes in perplexity in the paper's tables, next to which pages show our own."""

from __future__ import annotations

import math

from alibi_fairseq.paper import published

from .evaluation_key import EvaluationKey


def table5_change(first: EvaluationKey, second: EvaluationKey) -> float | None:
    """Return a change in the paper's Table 5, in nats; None if the table does not have it."""
    perplexities = {}
    for row in published.rows("table05"):
        evaluation = (row["position_method"], row["train_length"], row["length"])
        perplexities[evaluation] = row["perplexity"]
    of_first = perplexities.get((first.method, first.train_length, first.length))
    of_second = perplexities.get((second.method, second.train_length, second.length))
    if of_first is None or of_second is None:
        return None
    return math.log(of_first / of_second)


def table15_change(train_length: int, multiple: int) -> float | None:
    """Return the change from L in Table 15 (S = 1), in nats; None if the paper does not have it."""
    by_length = {}
    for row in published.rows("table15"):
        if row["train_length"] == train_length:
            by_length[row["length"]] = row["perplexity"]
    if multiple * train_length not in by_length:
        return None
    return math.log(by_length[multiple * train_length] / by_length[train_length])
