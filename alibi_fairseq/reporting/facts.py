"""Facts of a model that readers need to know, such as its size, its updates, and its overrides."""

from __future__ import annotations

import json
from collections.abc import Iterable

from ..results.result import RowKey
from ..results.series import Facts, Reading

#: Sentence parts of the facts of a model, by name and in order.
FACTS = {
    "architecture": "{}",
    "size": "{}",
    "updates": "{} updates",
    "tokens per update": "{} tokens per update",
    "precision": "{}",
    "dictionary": "dictionary of {}",
    "memory": "memory of {}",
    "training data": "trained on {}",
}


def list_facts(key: RowKey) -> dict[str, str]:
    """Return the facts of a model by the names of :data:`FACTS`; unknown ones are empty."""
    facts = key.series.facts
    tokens = key.series.tokens_per_update
    return {
        "architecture": facts.architecture or key.series.settings.get("model", ""),
        "size": size_text(facts),
        "updates": _updates(key),
        "tokens per update": "" if tokens is None else f"{tokens:,}",
        "precision": key.reading.precision,
        "dictionary": f"{facts.vocabulary:,}" if facts.vocabulary else "",
        "memory": f"{facts.memory_length:,}" if facts.memory_length else "",
        "training data": short_path(str(key.series.settings.get("data", ""))),
    }


def size_text(facts: Facts) -> str:
    """Return ``3 layers of width 128``, or an empty text if it is unknown."""
    if facts.layers is None or facts.width is None:
        return ""
    unit = "layer" if facts.layers == 1 else "layers"
    return f"{facts.layers} {unit} of width {facts.width}"


def fact_text(name: str, value: str) -> str:
    """Return a fact as part of a sentence; empty if it is unknown."""
    if not value or value.startswith("best"):
        return value
    return FACTS[name].format(value)


def _updates(key: RowKey) -> str:
    """Return the update count of a model, and how many updates were planned if it is less."""
    planned = key.series.settings.get("optimization.max_update")
    at = key.reading.at
    if at == "best":
        return "best checkpoint" + (f" of {planned:,} updates" if planned else "")
    if at is None:
        return ""
    if planned in (None, at):
        return f"{at:,}"
    return f"{at:,} of {planned:,}"


def overrides_text(reading: Reading) -> str:
    """Return the options that were changed for the evaluation; empty without any."""
    overrides = sorted(reading.overrides.items())
    return ", ".join(f"{name}={json.dumps(value)}" for name, value in overrides)


def short_path(text: str) -> str:
    """Return the last two parts of a path, such as the run and the name of a checkpoint."""
    return "/".join(text.split("/")[-2:])


def short_paths(texts: Iterable[str]) -> dict[str, str]:
    """Return the last parts of each path: two, or as many as all the paths need to differ."""
    parts = {text: text.split("/") for text in texts}
    number = 2
    while True:
        names = {text: "/".join(parts[text][-number:]) for text in parts}
        if len(set(names.values())) == len(names):
            return names
        number += 1
