"""How far methods are behind ALiBi in the validations during training."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from typing import NamedTuple

from alibi_fairseq.results.values import TextValues

from .study_results import StudyResults


class ValidationGaps(NamedTuple):
    """How far methods are behind ALiBi during training.

    Attributes:
        tokens: tokens that ALiBi's models had read, by number of updates.
        gaps: gap of each method in nats, by the updates at which ALiBi was validated as well.
    """

    tokens: dict[int, int]
    gaps: dict[str, dict[int, float]]


def validation_gaps(study: StudyResults, corpus: str, train_length: int) -> ValidationGaps:
    """Return how far each method at a training length is behind ALiBi, as means over seeds."""
    bits: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    tokens: dict[int, int] = {}
    for finished in study.models:
        if (finished.model.corpus, finished.model.train_length) != (corpus, train_length):
            continue
        method = finished.model.method
        for validation in finished.training.results:
            # --valid-subset can name several splits
            if validation.case.split != "valid" or not isinstance(validation.values, TextValues):
                continue
            assert validation.updates is not None, "a training counts its updates"
            bits[method][validation.updates].append(validation.values.loss_bits)
            if method == "alibi":
                tokens.setdefault(validation.updates, validation.cost.trained_tokens or 0)
    gaps: dict[str, dict[int, float]] = {}
    for method, curve in sorted(bits.items()):
        gaps[method] = {}
        for updates in sorted(curve.keys() & tokens.keys()):
            gap = statistics.mean(curve[updates]) - statistics.mean(bits["alibi"][updates])
            gaps[method][updates] = gap * math.log(2)
    return ValidationGaps(tokens, gaps)
