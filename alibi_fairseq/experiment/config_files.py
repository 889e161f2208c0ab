"""Configurations as YAML or plain values. One sentence says what is wrong with an invalid one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError

from ..errors import UserInputError, describe_invalid
from ..files import atomic_write, read_yaml
from .schema import ExperimentConfig


def load_config(path: str | Path, kind: type = ExperimentConfig) -> Any:
    """Load a configuration from a YAML file.

    Args:
        kind: dataclass of the configuration. Its attributes are the keys of the file.

    Raises:
        UserInputError: the file is not YAML, or a value is invalid.
    """
    values = read_yaml(path)
    try:
        return from_mapping(values, kind)
    except (ValueError, RecursionError) as error:
        raise UserInputError(f"{path}: {error}") from error


def from_mapping(
    values: object, kind: type = ExperimentConfig, flags: Mapping[str, str] = MappingProxyType({})
) -> Any:
    """Create a configuration from plain values, such as a YAML file has.

    Args:
        values: values by key. A single value may stand for a list of one.
        kind: dataclass of the configuration.
        flags: command-line flags by key, for error messages.

    Raises:
        UserInputError: a value is invalid.
    """
    try:
        return TypeAdapter(kind).validate_python(values)
    except ValidationError as error:
        left_out = [key for key in ("models", "evaluations") if not _has_key(values, key)]
        raise UserInputError(describe_invalid(error, flags, left_out)) from error


def _has_key(values: object, key: str) -> bool:
    """Return True if a mapping in plain values has a key."""
    if isinstance(values, Mapping):
        return key in values or _has_key(list(values.values()), key)
    return isinstance(values, list) and any(_has_key(item, key) for item in values)


def save_config(config: ExperimentConfig, path: Path) -> None:
    """Write an experiment to a YAML file, with the defaults of the keys that were not given."""
    with atomic_write(path) as file:
        yaml.safe_dump(as_mapping(config), file, sort_keys=False, allow_unicode=True)


def as_mapping(config: ExperimentConfig) -> dict:
    """Return the plain values of an experiment, for :func:`from_mapping`.

    A single group is written without ``models``, and a single evaluation without ``evaluations``.
    """
    plain = TypeAdapter(type(config)).dump_python(config, mode="json", exclude_none=True)
    for group in plain["models"]:
        if len(group["lr"]) == 1:
            (group["lr"],) = group["lr"]  # a list would look like tuning
        if len(group["evaluations"]) == 1:
            (evaluation,) = group.pop("evaluations")
            group.update({key: value for key, value in evaluation.items() if key not in group})
    if len(plain["models"]) > 1:
        return plain
    (group,) = plain.pop("models")
    return {**plain, **group}
