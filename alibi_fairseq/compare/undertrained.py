"""Warning about models that have barely trained."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from ..evaluation.split import load_dictionary, load_split
from ..results.data_folder import DataFolder
from ..results.groups import group_by_model
from ..results.record import Measurement

#: Smallest gain of a trained model over the unigram entropy, as a fraction of that entropy.
MIN_GAIN = 0.1


def unigram_entropy(data: Path, subset: str) -> float:
    """Return the entropy of the token frequencies of a split, in bits per token.

    It is the lowest loss on this split of a model that ignores the context.
    """
    tokens = load_split(DataFolder.open(data), subset, load_dictionary(data)).tokens  # (N,)
    counts = np.bincount(tokens)
    frequencies = counts[counts > 0] / len(tokens)
    return float(-(frequencies * np.log2(frequencies)).sum())


def undertrained_models(measurements: Iterable[Measurement], entropy: float) -> list[str]:
    """Return labels of models whose lowest loss over all lengths is near the unigram entropy.

    The labels are the same as in tables. Each run of a model is checked, and one such run is enough
    for its label.

    Args:
        entropy: unigram entropy of the evaluated split, in bits per token.
    """
    labels: dict[tuple, str] = {}
    perplexities: dict[tuple, list[float]] = {}
    for model in group_by_model(measurements):
        for measurement in model.measurements:
            if measurement.perplexity is None:
                continue
            # Evaluations with overridden options share the trained model.
            run = (measurement.model.training_key, measurement.model.run_key)
            labels.setdefault(run, model.label)
            perplexities.setdefault(run, []).append(measurement.perplexity)
    max_loss = (1 - MIN_GAIN) * entropy
    undertrained: list[str] = []
    for run, values in perplexities.items():
        if math.log2(min(values)) > max_loss and labels[run] not in undertrained:
            undertrained.append(labels[run])
    return undertrained


def undertrained_warning(measurements: Iterable[Measurement], entropy: float) -> str | None:
    """Return a warning that names the models that have barely trained, or None.

    Args:
        entropy: unigram entropy of the evaluated split, in bits per token.
    """
    labels = undertrained_models(measurements, entropy)
    if not labels:
        return None
    return (
        f"Warning: these models have barely trained: {'; '.join(labels)}. Token frequencies alone "
        f"give a perplexity of {2**entropy:,.1f} on this split, and the loss of these models is "
        f"not even {MIN_GAIN:.0%} lower. Do not compare their position methods. Train longer with "
        "--updates."
    )
