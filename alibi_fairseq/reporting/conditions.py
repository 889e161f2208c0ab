"""Conditions of a training: what the rows of a table have in common, and what differs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..results.series import Facts, Reading, Series
from ..results.settings import applicable_defaults, canonical, resolve

#: Text of a condition that results do not record.
UNKNOWN = "unknown"

#: Condition of models of which some were trained with unknown options.
OPTIONS = "training options"

#: Sentence parts of the facts of a model, by name and in order. Other conditions are settings.
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
#: Settings that follow from a fact, unless models with the same fact differ in them.
_STATED_BY = {
    "model": "architecture",
    "decoder-layers": "size",
    "decoder-embed-dim": "size",
    "decoder-ffn-embed-dim": "size",
    "decoder-input-dim": "size",
    "decoder-output-dim": "size",
    "sequences-per-update": "tokens per update",
    "batches-per-update": "tokens per update",
    "total-num-update": "updates",
    "warmup-updates": "updates",
    "data.dictionary": "dictionary",
    "data.train-lines": "training data",
}
#: Settings that are not shown: the name of a row has the first two, and the last one identifies
#: models whose training is unknown.
_NOT_SHOWN = {"method", "task.tokens_per_sample", "weights"}
#: Settings that only models of one method share.
_OF_METHOD = {"plugin", "method_versions"}
#: Settings whose value is a hash.
_HASHES = ("training data", "plugin", "data.dictionary", "data.train-lines", "started from")
_HASH_LENGTH = 64


class Model(NamedTuple):
    """Model of a row: how it was trained, and which of its weights are read."""

    series: Series
    reading: Reading

    @property
    def is_known(self) -> bool:
        """False for a model of which only the weights are known."""
        return "weights" not in self.series.settings


def list_facts(model: Model) -> dict[str, str]:
    """Return the facts of a model by the names of :data:`FACTS`; unknown ones are empty."""
    facts = model.series.facts
    tokens = model.series.tokens_per_update
    return {
        "architecture": facts.architecture or model.series.settings.get("model", ""),
        "size": size_text(facts),
        "updates": _updates(model),
        "tokens per update": "" if tokens is None else f"{tokens:,}",
        "precision": model.reading.precision,
        "dictionary": f"{facts.vocabulary:,}" if facts.vocabulary else "",
        "memory": f"{facts.memory_length:,}" if facts.memory_length else "",
        "training data": short_path(str(model.series.settings.get("data", ""))),
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


def _updates(model: Model) -> str:
    """Return the update count of a model, and how many updates were planned if it is less."""
    planned = model.series.settings.get("optimization.max_update")
    at = model.reading.at
    if at == "best":
        return "best checkpoint" + (f" of {planned:,} updates" if planned else "")
    if at is None:
        return ""
    if planned in (None, at):
        return f"{at:,}"
    return f"{at:,} of {planned:,}"


def differences(models: Sequence[Model], of_one_method: bool = False) -> dict[str, list[str]]:
    """Return the conditions that differ between models.

    A setting that differs only because it is unknown for some models is left out.

    Args:
        models: the models.
        of_one_method: True if the models have the same position method, whose options then count.

    Returns:
        The text of each model by the name of the condition.
    """
    different: dict[str, list[str]] = {}
    facts = [list_facts(model) for model in models]
    for name in FACTS:
        if name == "training data" or (name == "memory" and not of_one_method):
            continue
        values = [of_model[name] for of_model in facts]
        if len(set(values)) > 1:
            different[name] = [value or UNKNOWN for value in values]
    settings = [_shown_settings(model, of_one_method) for model in models]
    for name in dict.fromkeys(name for of_model in settings for name in of_model):
        values_of_setting = _values(name, models, settings)
        texts = _texts(name, values_of_setting)
        if len(set(texts) - {UNKNOWN}) < 2:
            continue
        fact = different.get(_STATED_BY.get(name, ""))
        if fact is None or not _follows(texts, fact):
            different[name] = texts
    if of_one_method and len({model.is_known for model in models}) > 1:
        different[OPTIONS] = ["known" if model.is_known else UNKNOWN for model in models]
    return different


def _shown_settings(model: Model, of_one_method: bool) -> dict[str, Any]:
    """Return the settings of a model that count and are shown, by the name that is shown."""
    settings: dict[str, Any] = {}
    for name, value in canonical(model.series.settings).items():
        if name in _NOT_SHOWN or (name in _OF_METHOD and not of_one_method):
            continue
        settings[_shown_name(name)] = value
    if of_one_method:
        shown = model.series.method.labeled_options
        for option, text in model.series.method.option_texts.items():
            if option not in shown:
                settings[_shown_name(option)] = text
    if model.series.start is not None:
        settings["started from"] = model.series.start
    for stage in model.series.history:
        settings["resumed with other settings"] = f"after {stage.until:,} updates"
    return settings


def _shown_name(name: str) -> str:
    """Return the name of a setting in tables: that of its option where it has one."""
    if name in ("data", "data.train"):
        return "training data"
    if name.startswith("data."):
        return name.replace("_", "-")
    return name.rpartition(".")[2].replace("_", "-")


def _values(name: str, models: Sequence[Model], settings: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Return the value of a setting of each model, its default included."""
    values = []
    for model, of_model in zip(models, settings, strict=True):
        if name in of_model:
            values.append(of_model[name])
        elif model.is_known:
            values.append(_default(name, model.series))
        else:
            values.append(UNKNOWN)
    return values


def _default(shown_name: str, series: Series) -> Any:
    """Return the default of a setting; None if it has none."""
    defaults = applicable_defaults(series.settings)
    for name in defaults:
        if _shown_name(name) == shown_name:
            return resolve(name, series.settings, defaults)
    return None


def _texts(name: str, values: Sequence[Any]) -> list[str]:
    """Return the texts of a setting's values, shortened unless that makes different ones equal."""
    full = [_full_text(value) for value in values]
    short = [_short_text(name, text) for text in full]
    return short if len(set(short)) == len(set(full)) else full


def _full_text(value: Any) -> str:
    """Return a value as text."""
    if value is None:
        return "none"
    if isinstance(value, str):
        return value
    return json.dumps(value)


def _short_text(name: str, text: str) -> str:
    """Return the first digits of a hash, and the last parts of a path."""
    if name in _HASHES and len(text) == _HASH_LENGTH:
        return text[:8]
    return short_path(text)


def short_path(text: str) -> str:
    """Return the last two parts of a path, which name a comparison's data and runs."""
    return "/".join(text.split("/")[-2:])


def _follows(texts: Sequence[str], fact: Sequence[str]) -> bool:
    """Return True if models with the same fact have the same value of a setting."""
    values: dict[str, str] = {}
    known = [(key, text) for key, text in zip(fact, texts, strict=True) if text != UNKNOWN]
    return all(values.setdefault(key, text) == text for key, text in known)


def condition_text(name: str, value: str) -> str:
    """Return a condition of a model as part of its label, such as ``lr 0.1``."""
    if value == UNKNOWN:
        return f"{value} {name}"
    if name == OPTIONS:
        return ""
    if name in FACTS:
        return fact_text(name, value)
    if value in ("true", "false"):
        return name if value == "true" else f"no {name}"
    return f"{name} {value}"
