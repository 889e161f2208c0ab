"""Warning about models that are hardly better than token frequencies."""

from __future__ import annotations

from collections.abc import Iterable

from ..results.result import TextValues
from .row import Row

#: Smallest gain of a trained model over token frequencies, as a fraction of their entropy.
MIN_GAIN = 0.1


def undertrained_warning(rows: Iterable[Row]) -> str:
    """Return a warning about models whose loss is near the entropy of token frequencies, or "".

    The lowest loss of each seed over all rows counts, also of evaluations with overridden options,
    which share the trained model. The entropy is unknown in results of earlier versions.
    """
    labels: dict[tuple, str] = {}
    lowest: dict[tuple, tuple[float, float]] = {}  # loss and entropy in bits
    for row in rows:
        for result in row.results:
            values = result.values
            if not isinstance(values, TextValues) or values.unigram_bits is None:
                continue
            checkpoint = result.checkpoint_sha256 or result.checkpoint
            seed = (result.series.id, result.reading.at, result.seed, checkpoint)
            labels.setdefault(seed, row.label)
            bits = (values.loss_bits, values.unigram_bits)
            lowest[seed] = min(bits, lowest.get(seed, bits))
    worse = []
    near = []
    perplexities = []
    for seed, (loss, entropy) in lowest.items():
        if loss <= (1 - MIN_GAIN) * entropy:
            continue
        perplexities.append(f"{2**entropy:,.1f}")
        if loss > entropy:
            worse.append(labels[seed])
        else:
            near.append(labels[seed])
    if not perplexities:
        return ""
    sentences = [
        "Warning: token frequencies alone have a perplexity of "
        f"{' or '.join(_distinct(perplexities))} on this split"
    ]
    if worse:
        sentences.append(f"These models are worse: {'; '.join(_distinct(worse))}")
    near_only = [label for label in _distinct(near) if label not in worse]
    if near_only:
        sentences.append(
            f"The loss of these models is less than {MIN_GAIN:.0%} lower: {'; '.join(near_only)}"
        )
    sentences.append("Do not compare their position methods. Train them longer")
    return ". ".join(sentences)


def _distinct(texts: Iterable[str]) -> list[str]:
    """Return the texts without repetitions, in order."""
    return list(dict.fromkeys(texts))
