"""Caption of a figure of measured perplexities."""

from __future__ import annotations

from collections.abc import Iterable

from ..results.names import model_label, size_text
from ..results.record import Measurement

#: Largest number of values that a caption lists.
MAX_LISTED = 4


def caption(measurements: Iterable[Measurement]) -> str:
    """Return the caption: corpora, models, updates, seeds, and models near chance.

    The paper's measurements, which have no corpus, are left out.
    """
    corpora = set()
    model_names = set()
    sizes = set()
    update_counts = set()
    seed_counts = set()
    near_chance = set()
    for measurement in measurements:
        if measurement.corpus is None:
            continue
        corpora.add(measurement.corpus)
        model_names.add(measurement.model.architecture)
        sizes.add(size_text(measurement.model.layers, measurement.model.width, None))
        if measurement.model.updates is not None:
            update_counts.add(f"{measurement.model.updates:,}")
        seed_counts.add(measurement.seeds)
        if measurement.is_near_chance:
            model = measurement.model
            label = model_label(model.method_name, model.train_length)
            near_chance.add(label)
    if not corpora:
        return ""
    parts = [_listed(corpora), _listed(model_names), _listed(sizes)]
    if update_counts:
        parts.append(f"{_listed(update_counts)} updates")
    parts += _seeds_texts(seed_counts)
    if len(near_chance) > MAX_LISTED:
        parts.append(f"near chance: {len(near_chance)} models")
    elif near_chance:
        parts.append(f"near chance: {_listed(near_chance)}")
    known_parts = [part for part in parts if part]
    return "; ".join(known_parts)


def _seeds_texts(counts: set[int]) -> list[str]:
    """Return the parts of a caption about numbers of seeds.

    Args:
        counts: numbers of seeds that were averaged.
    """
    several = [str(count) for count in sorted(counts) if count > 1]
    if not several:
        return ["a single seed"]
    texts = [f"mean and standard deviation of {' or '.join(several)} seeds"]
    if 1 in counts:
        texts.append("a single seed for some models")
    return texts


def _listed(names: set[str] | set[str | None]) -> str:
    """Return the known names, or their number if it is above ``MAX_LISTED``."""
    known = sorted(name for name in names if name)
    if len(known) > MAX_LISTED:
        return f"{len(known)} different"
    return ", ".join(known)
