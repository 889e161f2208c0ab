"""Conditions of measurements: what readers need to know to compare them with others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..results.groups import ModelMeasurements
from ..results.names import model_facts
from ..results.record import AnyMeasurement, ProbeMeasurement

#: Largest number of values that a caption lists.
MAX_LISTED = 4
#: Learning rate of a model without recorded options.
UNKNOWN_RATE = "unknown"


def conditions(models: Sequence[ModelMeasurements]) -> str:
    """Return what all models of a table have in common, and the learning rate of each if unequal.

    The names of the models state the rest (:class:`~alibi_fairseq.results.names.TableNames`). The
    paper's measurements, which have no corpus, are left out.
    """
    measurements = _ours(models)
    parts = [_listed({measurement.corpus for measurement in measurements})]
    for values in _facts(measurements):
        if len(values) == 1:
            parts.append(_listed(values))
    rates = [_learning_rate(model) for model in models]
    have_one_rate = len(set(rates)) == 1
    if have_one_rate and rates[0] != UNKNOWN_RATE:
        parts.append(f"learning rate {rates[0]}")
    parts += _seeds_texts(models)
    common = "; ".join(part for part in parts if part)
    if not common:
        return ""
    text = f"All models: {common}"
    if not have_one_rate:
        named = [f"{model.label}: {rate}" for model, rate in zip(models, rates, strict=True)]
        text += f". Learning rates: {'; '.join(named)}"
    return text


def caption(models: Sequence[ModelMeasurements]) -> str:
    """Return the caption of a figure of models: its conditions, and models near chance.

    Its panels may have different models, so the caption lists the values of each condition.
    """
    measurements = _ours(models)
    parts = [_listed({measurement.corpus for measurement in measurements})]
    parts += [_listed(values) for values in _facts(measurements)]
    parts += _seeds_texts(models)
    near_chance = {model.label for model in models if _has_chance(model)}
    if len(near_chance) > MAX_LISTED:
        parts.append(f"near chance: {len(near_chance)} models")
    elif near_chance:
        parts.append(f"near chance: {_listed(near_chance)}")
    return "; ".join(part for part in parts if part)


def _has_chance(model: ModelMeasurements) -> bool:
    """Return True if a measurement of a model is near chance."""
    return any(measurement.is_near_chance for measurement in model.measurements)


def _ours(models: Iterable[ModelMeasurements]) -> list[AnyMeasurement]:
    """Return the measurements of models, without the paper's."""
    measurements: list[AnyMeasurement] = []
    for model in models:
        measurements += [m for m in model.measurements if m.corpus is not None]
    return measurements


def _facts(measurements: Iterable[AnyMeasurement]) -> list[set[str]]:
    """Return the values of each fact of the measured models."""
    facts = [model_facts(measurement.model).values() for measurement in measurements]
    return [set(values) for values in zip(*facts)]


def _learning_rate(model: ModelMeasurements) -> str:
    """Return the learning rate of a model, as text, or :data:`UNKNOWN_RATE`."""
    options = model.measurements[0].model.options or {}
    return options.get("lr", UNKNOWN_RATE)


def _seeds_texts(models: Iterable[ModelMeasurements]) -> list[str]:
    """Return the parts about numbers of seeds that were averaged."""
    counts = set()
    for model in models:
        runs = {measurement.model.checkpoint_key for measurement in model.measurements}
        for measurement in _ours([model]):
            if isinstance(measurement, ProbeMeasurement):
                counts.add(len(runs))
            else:
                counts.add(measurement.seeds)
    several = [str(count) for count in sorted(counts) if count > 1]
    if not several:
        return ["a single seed"] if counts else []
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
