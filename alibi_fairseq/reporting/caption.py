"""Caption of a figure of measured perplexities."""

from __future__ import annotations

from collections.abc import Iterable

from alibi_fairseq.results.labels import model_label, size_text
from alibi_fairseq.results.measurements import Measurement, is_chance

#: Largest number of values that a caption lists.
MAX_LISTED = 4


def caption(measurements: Iterable[Measurement]) -> str:
    """Return the caption: corpora, models, updates, seeds, and models near chance.

    The paper's measurements, which have no corpus, are left out.
    """
    ours = [measurement for measurement in measurements if measurement.corpus is not None]
    if not ours:
        return ""
    parts = [
        _listed(measurement.corpus for measurement in ours),
        _listed(measurement.model for measurement in ours),
        _listed(size_text(measurement.layers, measurement.width, None) for measurement in ours),
    ]
    updates = {measurement.updates for measurement in ours} - {None}
    if updates:
        parts.append(f"{_listed(f'{count:,}' for count in updates)} updates")
    parts += _seeds_texts([measurement.seeds for measurement in ours])
    near_chance = {
        model_label(measurement.position_method, measurement.train_length, measurement.display_name)
        for measurement in ours
        if is_chance(measurement.perplexity, measurement.vocabulary)
    }
    if len(near_chance) > MAX_LISTED:
        parts.append(f"near chance: {len(near_chance)} models")
    elif near_chance:
        parts.append(f"near chance: {', '.join(sorted(near_chance))}")
    return "; ".join(part for part in parts if part)


def _seeds_texts(counts: list[int]) -> list[str]:
    """Return the parts of a caption about numbers of seeds."""
    if max(counts) == 1:
        return ["a single seed"]
    texts = [f"mean and standard deviation of {max(counts)} seeds"]
    if 1 in counts:
        texts.append("a single seed for some models")
    return texts


def _listed(names: Iterable[str | None]) -> str:
    """Return the different names, or their number if it is above ``MAX_LISTED``."""
    different = sorted({name for name in names if name})
    if len(different) > MAX_LISTED:
        return f"{len(different)} different"
    return ", ".join(different)
