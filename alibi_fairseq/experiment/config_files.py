"""Configurations as YAML or plain values. An invalid one is rejected with one sentence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError

from ..errors import UserInputError, requirement
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
    except ValidationError as errors:
        first = errors.errors(include_url=False)[0]
        path = _written_path(first["loc"], values)
        raise UserInputError(_sentence(first, path, flags)) from errors


def _written_path(path: Iterable[str | int], values: object) -> list[str]:
    """Return the path of a key without the lists that a file with one group leaves out."""
    written = [str(part) for part in path]
    for key in ("models", "evaluations"):
        if key in written and not _has_key(values, key):
            position = written.index(key)
            del written[position : position + 2]  # with its index
    return written


def _has_key(values: object, key: str) -> bool:
    """Return True if a mapping in plain values has a key."""
    if isinstance(values, Mapping):
        return key in values or _has_key(list(values.values()), key)
    return isinstance(values, list) and any(_has_key(item, key) for item in values)


def _sentence(error: Mapping[str, Any], path: Sequence[str], flags: Mapping[str, str]) -> str:
    """Return a sentence about an error of pydantic, with the flag or the path of the key."""
    problem = requirement(error)
    value = error["input"]
    if problem.startswith("must") and isinstance(value, str | int | float):
        problem = f"{str(value)[:60]!r} {problem}"
    if not path:
        # The error is of the whole configuration, and most messages then begin with a key.
        key, colon, rest = problem.partition(": ")
        if colon:
            return f"{flags.get(key, key)}: {rest}."
        return f"{problem}."
    name = ".".join(path)
    for key in path:
        if key in flags:
            name = flags[key]
    return f"{name}: {problem}."


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
