"""Losses of the models of one training length, by evaluation length."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from .compared_models import ComparedModels
from .estimates import Estimate, estimate_change
from .losses import DocumentLosses, Losses

#: Evaluation length -> losses, by position method.
MethodLosses = Mapping[str, Mapping[int, DocumentLosses]]


def method_losses(
    losses: Losses, corpus: str, train_length: int, tested_on: str | None = None
) -> MethodLosses:
    """Return the evaluations without overlap and variant of the models of a training length.

    Args:
        corpus: the text that the models were trained on.
        tested_on: the text of the test split (default: ``corpus``).
    """
    by_method: dict[str, dict[int, DocumentLosses]] = defaultdict(dict)
    wanted = (corpus, tested_on or corpus, train_length)
    for key, document_losses in losses.items():
        if key.stride != key.length or key.variant:
            continue
        if (key.corpus, key.tested_on, key.train_length) == wanted:
            by_method[key.method][key.length] = document_losses
    return dict(sorted(by_method.items()))


class MethodChange(NamedTuple):
    """Change of a method's perplexity from its training length to a longer one."""

    method: str
    estimate: Estimate


def length_changes(losses: Losses, models: ComparedModels, multiple: int) -> list[MethodChange]:
    """Return the change of each method from L to a multiple of L, from the best to the worst.

    Args:
        losses: losses of the models.
        models: text and training length L of the models.
        multiple: evaluation length as a multiple of L.
    """
    length = models.train_length
    changes = []
    for method, by_length in method_losses(losses, models.corpus, length).items():
        if length not in by_length or multiple * length not in by_length:
            continue
        estimate = estimate_change(by_length[multiple * length], by_length[length])
        if estimate is not None:
            changes.append(MethodChange(method, estimate))
    return sorted(changes, key=lambda change: change.estimate.value)
