"""What differs between the models of a table, and the table that shows it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..results.result import RowKey
from ..results.series import Series
from ..results.settings import applicable_defaults, canonical, resolve
from .facts import FACTS, list_facts, short_path
from .row import Row
from .table import Column, Table

#: Text of a condition that results do not record.
UNKNOWN = "unknown"

#: Condition of models of which some were trained with unknown options.
OPTIONS = "training options"

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


def row_keys(rows: Iterable[Row]) -> list[RowKey]:
    """Return what identifies the models of rows, without those of the paper."""
    return [row.key for row in rows if row.key is not None]


def differing_conditions_table(rows: Sequence[Row]) -> Table[int] | None:
    """Return the conditions that differ between rows; None if there are none.

    The table has a row for each model, whose variants share it, and a column for each condition
    that differs, unless the labels of all rows state it.
    """
    by_model: dict[tuple, Row] = {}
    for row in rows:
        if row.key is None:  # the paper's numbers
            continue
        reading = row.key.reading
        by_model.setdefault((row.key.series, reading.at, reading.precision, row.name), row)
    models = list(by_model.values())
    different = _conditions_to_show(models)
    if not different:
        return None
    columns = [Column[int]("", lambda index: models[index].label)]
    for name, texts in different.items():
        columns.append(Column(name, texts.__getitem__))
    caption = "Models differ in these conditions"
    return Table(columns, range(len(models)), left=len(columns), caption=caption)


def _conditions_to_show(models: Sequence[Row]) -> dict[str, list[str]]:
    """Return the conditions that differ between the models, or those of one name."""
    different = differing_conditions(row_keys(models))
    for name in {row.name for row in models}:
        same_name = [row for row in models if row.name == name]
        found = differing_conditions(row_keys(same_name), of_one_method=True)
        for condition, texts in found.items():
            if condition in different:
                continue
            texts_by_row = {id(row): text for row, text in zip(same_name, texts, strict=True)}
            different[condition] = [texts_by_row.get(id(row), "") for row in models]
    stated = frozenset.intersection(*(row.stated for row in models)) if models else frozenset()
    return {name: texts for name, texts in different.items() if name not in stated}


def differing_conditions(
    keys: Sequence[RowKey], of_one_method: bool = False
) -> dict[str, list[str]]:
    """Return the conditions that differ between models.

    A setting that differs only because it is unknown for some models is left out.

    Args:
        keys: what identifies each model.
        of_one_method: True if the models have the same position method, whose options then count.

    Returns:
        The text of each model by the name of the condition.
    """
    different: dict[str, list[str]] = {}
    facts = [list_facts(key) for key in keys]
    for name in FACTS:
        if name == "training data" or (name == "memory" and not of_one_method):
            continue
        values = [of_model[name] for of_model in facts]
        if len(set(values)) > 1:
            different[name] = [value or UNKNOWN for value in values]
    settings = [_shown_settings(key, of_one_method) for key in keys]
    for name in dict.fromkeys(name for of_model in settings for name in of_model):
        values_of_setting = _values(name, keys, settings)
        texts = _texts(name, values_of_setting)
        if len(set(texts) - {UNKNOWN}) < 2:
            continue
        fact = different.get(_STATED_BY.get(name, ""))
        if fact is None or not _follows(texts, fact):
            different[name] = texts
    options = ["known" if key.series.settings_known else UNKNOWN for key in keys]
    if of_one_method and len(set(options)) > 1:
        different[OPTIONS] = options
    return different


def _shown_settings(key: RowKey, of_one_method: bool) -> dict[str, Any]:
    """Return the settings of a model that count and are shown, by the name that is shown."""
    settings: dict[str, Any] = {}
    for name, value in canonical(key.series.settings).items():
        if name in _NOT_SHOWN or (name in _OF_METHOD and not of_one_method):
            continue
        settings[_shown_name(name)] = value
    if of_one_method:
        shown = key.series.method.labeled_options
        for option, text in key.series.method.option_texts.items():
            if option not in shown:
                settings[_shown_name(option)] = text
    if key.series.start is not None:
        settings["started from"] = key.series.start
    if key.series.history:
        updates = " and ".join(f"{stage.until:,}" for stage in key.series.history)
        settings["resumed with other settings"] = f"after {updates} updates"
    return settings


def _shown_name(name: str) -> str:
    """Return the name of a setting in tables: that of its option where it has one."""
    if name in ("data", "data.train"):
        return "training data"
    if name.startswith("data."):
        return name.replace("_", "-")
    return name.rpartition(".")[2].replace("_", "-")


def _values(name: str, keys: Sequence[RowKey], settings: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Return the value of a setting of each model, its default included."""
    values = []
    for key, of_model in zip(keys, settings, strict=True):
        if name in of_model:
            values.append(of_model[name])
        elif key.series.settings_known:
            values.append(_default(name, key.series))
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


def _follows(texts: Sequence[str], fact: Sequence[str]) -> bool:
    """Return True if models with the same fact have the same value of a setting."""
    values: dict[str, str] = {}
    known = [(key, text) for key, text in zip(fact, texts, strict=True) if text != UNKNOWN]
    return all(values.setdefault(key, text) == text for key, text in known)
