"""Settings of a training: the values of everything that may determine its weights.

Results store the values, and only those that differ from a frozen table of defaults. Which of them
count is decided when results are read (:func:`canonical`), so a correction of that rule needs no
change of a file. Those that are irrelevant (:mod:`.irrelevant`), or that another setting makes
inert, do not count.

Settings are named ``group.field`` as in fairseq's configuration, for example ``model.dropout``. The
name of a component is named like its group: ``optimizer``. These are not fairseq's:

- ``method``: position methods of the layers (:class:`..positions.spec.MethodSpec`) as JSON
- ``method_versions``: versions of methods whose formula was corrected in a release
- ``plugin``: hash of the plugin of the method
- ``processes``: number of processes
- ``data.train``, ``data.train_lines``: hash of ``train.bin``, and of ``train.idx``, by shard
- ``data.dictionary``: hash of the dictionary's symbols
- ``data.valid``: hash of each validation split
- ``data``: path of the data, if the hashes are unknown
- ``start.OPTION``: path of the checkpoint to start from, in early results, which lack its hash
- ``parameters``: number of parameters, in early results that know the data by its path
- ``weights``: hash of a model, if nothing else is known about its training
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

from .irrelevant import IRRELEVANT, SELECTION

#: Values by name.
Settings = Mapping[str, Any]

#: Groups of fairseq's options whose fields are settings.
GROUPS = (
    "common",
    "distributed_training",
    "dataset",
    "optimization",
    "checkpoint",
    "bmuf",
    "ema",
)
#: Groups of which fairseq has several implementations, each with its own fields.
COMPONENTS = ("model", "task", "criterion", "optimizer", "lr_scheduler")
#: Key in the table of an architecture that takes the other defaults from another architecture.
BASE = "_base"
#: Architecture whose defaults apply to one that the table does not have.
_ANY_MODEL = "alibi_lm"

#: Defaults by group, and by group and name of components; of methods by name.
DEFAULTS: Mapping[str, Any] = json.loads(
    Path(__file__).with_name("defaults.json").read_text(encoding="utf-8")
)
#: Components that fairseq chooses without an option.
_DEFAULT_COMPONENTS = {"criterion": "cross_entropy", "lr_scheduler": "fixed"}
#: Components with the same results as another one.
_SAME_COMPONENT = {
    "chunked_adaptive_loss": "adaptive_loss",
    "chunked_cross_entropy": "cross_entropy",
}
#: Schedule whose learning rate follows the validation loss.
_PLATEAU = "reduce_lr_on_plateau"
#: Settings of a batch of sequences of equal length.
_SEQUENCE_SETTINGS = (
    "dataset.batch_size",
    "dataset.max_tokens",
    "dataset.required_batch_size_multiple",
)
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
_REFERENCE = re.compile(r"\$\{(.+)\}")
_LONGEST_NUMBER = 30
_LONGEST_LIST = 200


def plain(value: Any) -> Any:
    """Return the one form of a value, whether it comes from a command line, YAML, or JSON.

    A text that reads as a number is the number, a whole number is an integer, and a list with one
    element is the element. fairseq has options that are lists as text, such as ``(0.9, 0.98)``.
    """
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, str):
        return _plain_text(value)
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, Mapping):
        return {str(key): plain(element) for key, element in value.items()}
    if isinstance(value, Sequence):
        elements = [plain(element) for element in value]
        return elements[0] if len(elements) == 1 else elements
    return value


def _plain_text(text: str) -> Any:
    """Return the number or list of numbers that a text is, or the text."""
    if len(text) <= _LONGEST_NUMBER and _NUMBER.fullmatch(text):
        return plain(float(text))
    if len(text) > _LONGEST_LIST or "," not in text:
        return text
    bracketed = text if text[0] in "([" else f"[{text}]"
    try:
        values = json.loads(bracketed.replace("(", "[").replace(")", "]"))
    except ValueError:
        return text
    return plain(values)


def canonical(settings: Settings) -> dict[str, Any]:
    """Return the settings that count, each in one form. Equal results: equally trained models.

    Settings with their default are left out, and so are those that cannot change the weights. The
    function is idempotent. Here, the betas are Adam's defaults, and neither the number of updates
    nor the interval between checkpoints changes the weights. What does change them is the end of
    the learning-rate schedule, which is the number of updates by default:

    >>> canonical(
    ...     {
    ...         "method": {"layers": [{"name": "alibi"}]},
    ...         "optimizer": "adam",
    ...         "optimizer.adam_betas": "(0.9, 0.999)",
    ...         "optimization.lr": [0.008],
    ...         "optimization.max_update": 750,
    ...         "lr_scheduler": "polynomial_decay",
    ...         "checkpoint.save_interval_updates": 100,
    ...     }
    ... )  # doctest: +NORMALIZE_WHITESPACE
    {'method': {'layers': [{'name': 'alibi'}]}, 'optimizer': 'adam', 'optimization.lr': 0.008,
     'lr_scheduler': 'polynomial_decay', 'lr_scheduler.total_num_update': 750}
    """
    values: dict[str, Any] = {}
    for name, value in settings.items():
        values[name] = _plain_method(value) if name == "method" else plain(value)
    for group in COMPONENTS:
        if isinstance(values.get(group), str):
            values[group] = _SAME_COMPONENT.get(values[group], values[group])
    defaults = applicable_defaults(values)
    _resolve_references(values, defaults)
    for name in list(values):
        if name in defaults and _same(values[name], defaults[name]):
            del values[name]
    _join_batch_settings(values, defaults)
    irrelevant = set(IRRELEVANT)
    if values.get("lr_scheduler") == _PLATEAU:  # validation losses change the learning rate
        irrelevant -= SELECTION
    kept = {}
    for name, value in values.items():
        if name not in irrelevant and not _is_inert(name, values):
            kept[name] = value
    return kept


def selection(settings: Settings) -> dict[str, Any]:
    """Return the settings that decide which checkpoint of a run is the best one."""
    values = {name: plain(value) for name, value in settings.items() if name in SELECTION}
    defaults = applicable_defaults(settings)
    kept = {}
    for name, value in values.items():
        if not is_default(name, settings, defaults):
            kept[name] = value
    return kept


def is_default(name: str, settings: Settings, defaults: Settings) -> bool:
    """Return True if a setting has its default, which may be a reference to another setting."""
    return name in defaults and _same(plain(settings[name]), resolve(name, settings, defaults))


def applicable_defaults(settings: Settings) -> dict[str, Any]:
    """Return the defaults of the table by name, for the components of the settings."""
    defaults = dict(_common_defaults())
    for group in COMPONENTS:
        name = settings.get(group, _DEFAULT_COMPONENTS.get(group))
        for field, default in component_defaults(group, name).items():
            defaults[f"{group}.{field}"] = default
    for group, name in _DEFAULT_COMPONENTS.items():
        defaults[group] = name
    defaults["processes"] = 1
    return defaults


@functools.cache
def _common_defaults() -> dict[str, Any]:
    """Return the defaults of the groups without implementations."""
    defaults = {}
    for group in GROUPS:
        for field, default in DEFAULTS[group].items():
            defaults[f"{group}.{field}"] = default
    return defaults


@functools.cache
def component_defaults(group: str, name: str | None) -> Settings:
    """Return the defaults of the fields of a component; none if the table does not have it."""
    table = DEFAULTS[group]
    if group == "model" and name not in table:
        name = _ANY_MODEL
    values = dict(table.get(name, {}))
    base = values.pop(BASE, None)
    if base is not None:
        values = {**component_defaults(group, base), **values}
    return values


def resolve(name: str, settings: Settings, defaults: Settings) -> Any:
    """Return a default, which may be a reference to another setting; None if that has none."""
    default = defaults.get(name)
    match = _REFERENCE.fullmatch(default) if isinstance(default, str) else None
    if match is None:
        return default
    referent = match[1]
    if referent in settings:
        return plain(settings[referent])
    return resolve(referent, settings, defaults)


def _resolve_references(values: dict[str, Any], defaults: dict[str, Any]) -> None:
    """Replace defaults that refer to other settings by the values of those settings.

    The end of the schedule, ``lr_scheduler.total_num_update``, is by default the number of updates.
    It counts, although the number of updates itself doesn't. A setting of this kind is not left out
    where it has its default: the value is written out in the settings.
    """
    for name, default in list(defaults.items()):
        match = _REFERENCE.fullmatch(default) if isinstance(default, str) else None
        if match is None:
            continue
        value = resolve(name, values, defaults)
        if match[1] not in IRRELEVANT or name in IRRELEVANT:
            defaults[name] = value
            continue
        del defaults[name]
        if name not in values and value is not None:
            values[name] = value


def _same(value: Any, other: Any) -> bool:
    """Return True if two values are the same in JSON, where a truth value is not a number."""
    return json.dumps(value, sort_keys=True) == json.dumps(plain(other), sort_keys=True)


def _is_inert(name: str, values: Settings) -> bool:
    """Return True if another setting makes a setting have no effect."""
    if name.startswith("bmuf."):
        return not values.get("optimization.use_bmuf")
    if name == "lr_scheduler.max_update":
        if values.get("lr_scheduler") == "cosine":
            period = values.get("lr_scheduler.lr_period_updates")
            return period is not None and period > 0
        if values.get("lr_scheduler") == "tri_stage":
            return values.get("lr_scheduler.phase_ratio") is None
    # The lines of the text do not matter if its tokens are cut into blocks of equal length.
    if name == "data.train_lines":
        return "task.sample_break_mode" not in values
    return False


def _join_batch_settings(values: dict[str, Any], defaults: Settings) -> None:
    """Replace the settings of a batch by the number of batches, or of sequences, per update.

    fairseq takes W·U consecutive batches of the shuffled ones per update, whatever the number of
    processes W and ``update_freq`` U. Blocks of equal length are shuffled before they are put in
    batches, so the number of sequences is all that matters.
    """
    if "sequences_per_update" in values or "batches_per_update" in values:
        return
    processes = values.pop("processes", 1)
    frequency = values.pop("optimization.update_freq", 1)
    frequencies = frequency if isinstance(frequency, list) else [frequency]
    batches = [processes * number for number in frequencies]
    sequences = _sequences_per_batch(values, defaults)
    if sequences is not None:
        for name in _SEQUENCE_SETTINGS:
            values.pop(name, None)
        values["sequences_per_update"] = plain([number * sequences for number in batches])
    elif batches != [1]:
        values["batches_per_update"] = plain(batches)


def _sequences_per_batch(values: Settings, defaults: Settings) -> int | None:
    """Return the number of sequences per batch; None if they may differ in length."""
    if values.get("task") != "language_modeling":
        return None
    if "task.sample_break_mode" in values or "task.add_bos_token" in values:
        return None
    length = values.get("task.tokens_per_sample", defaults["task.tokens_per_sample"])
    limits = []
    max_tokens = values.get("dataset.max_tokens")
    if max_tokens:
        limits.append(max_tokens // length)
    batch_size = values.get("dataset.batch_size")
    if batch_size:
        limits.append(batch_size)
    if not limits or min(limits) == 0:
        return None
    sequences = min(limits)
    name = "dataset.required_batch_size_multiple"
    multiple = values.get(name, defaults[name])
    if sequences > multiple:
        sequences -= sequences % multiple
    return sequences


def _plain_method(method: Mapping[str, Any]) -> dict[str, Any]:
    """Return a position method without display names and defaults."""
    layers = []
    for layer in method["layers"]:
        defaults = DEFAULTS["method"].get(layer["name"], {})
        options = {}
        for name, value in layer.get("options", {}).items():
            if not (name in defaults and _same(plain(value), defaults[name])):
                options[name] = plain(value)
        kept: dict[str, Any] = {"name": layer["name"]}
        if options:
            kept["options"] = options
        if layer.get("window"):
            kept["window"] = layer["window"]
        layers.append(kept)
    kept_method: dict[str, Any] = {"layers": layers}
    if method.get("score_scaling", "none") != "none":
        kept_method["score_scaling"] = method["score_scaling"]
    return kept_method
