"""Settings of a training from fairseq's configuration of it.

The plan of an experiment and the trainer call the same function, so a run that is planned knows the
results of one that was trained.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ..positions.spec import MethodSpec
from .data_hashes import DataHashes
from .irrelevant import NOT_WRITTEN
from .settings import COMPONENTS, GROUPS, applicable_defaults, is_default, plain


def collect_settings(
    cfg: Any, processes: int, data: DataHashes | None, plugin: str | None
) -> dict[str, Any]:
    """Return the settings of a training, without those that have their default.

    The number of processes is always there, because some early results lack it.

    Args:
        cfg: fairseq's configuration of the training.
        processes: number of processes of the run, which the configuration need not have.
        data: hashes of its data. None: the data is known by its path only, as before it is
            prepared.
        plugin: hash of the plugin of its position method; None for a method of this package.
    """
    values: dict[str, Any] = {}
    for group in GROUPS:
        values |= _collect_fields(group, cfg.get(group))
    for group in COMPONENTS:
        component = cfg.get(group)
        if component is None:
            continue
        values |= _collect_fields(group, component)
        if component.get("_name") is not None:
            values[group] = str(component.get("_name"))
    defaults = applicable_defaults(values)
    written: dict[str, Any] = {"processes": processes}
    for name, value in values.items():
        if not is_default(name, values, defaults):
            written[name] = value
    method = MethodSpec.from_options(cfg.model)
    written["method"] = method_json(method)
    versions = _method_versions(method)
    if versions:
        written["method_versions"] = versions
    if plugin is not None:
        written["plugin"] = plugin
    if data is None:
        written["data"] = os.fspath(cfg.task.data)
    else:
        written["data.train"] = plain(data.train)
        written["data.train_lines"] = plain(data.train_lines)
        written["data.dictionary"] = data.dictionary
        written["data.valid"] = dict(data.valid)
    return dict(sorted(written.items()))


def _collect_fields(group: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a group by setting, without those that are recorded elsewhere."""
    unwritten = _method_options() if group == "model" else set()
    fields = {}
    for field, value in options.items():
        name = f"{group}.{field}"
        if not field.startswith("_") and field not in unwritten and name not in NOT_WRITTEN:
            fields[name] = plain(value)
    return fields


def _method_options() -> set[str]:
    """Return the names of the options of position methods, which are part of the method."""
    from ..positions.registry import all_options  # imports PyTorch

    return set(all_options())


def _method_versions(method: MethodSpec) -> dict[str, int]:
    """Return the versions of the methods of the layers, without first versions."""
    from ..positions.registry import METHODS  # imports PyTorch

    versions = {}
    for name in method.names:
        version = METHODS[name].version if name in METHODS else 1
        if version != 1:
            versions[name] = version
    return versions


def settings_of_weights(
    method: MethodSpec, train_length: int, weights_sha256: str
) -> dict[str, Any]:
    """Return the settings of a model of which only the weights are known.

    Args:
        method: position methods of the layers.
        train_length: training length in tokens.
        weights_sha256: hash of the weights, which no other training has.
    """
    return {
        "method": method_json(method),
        "task.tokens_per_sample": train_length,
        "weights": weights_sha256,
    }


def method_json(method: MethodSpec) -> dict[str, Any]:
    """Return a position method as JSON, without empty fields."""
    layers = []
    for layer in method.layers:
        fields: dict[str, Any] = {"name": layer.name}
        if layer.options:
            fields["options"] = dict(layer.options)
        if layer.window:
            fields["window"] = layer.window
        if layer.display_name:
            fields["display_name"] = layer.display_name
        layers.append(fields)
    content: dict[str, Any] = {"layers": layers}
    if method.score_scaling != "none":
        content["score_scaling"] = method.score_scaling
    return content
