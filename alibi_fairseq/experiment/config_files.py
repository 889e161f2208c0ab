"""Configurations as YAML or plain values. An invalid one is rejected with one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import TypeAdapter, ValidationError

from ..errors import UserInputError, requirement
from ..files import read_yaml
from .comparison_config import ComparisonConfig


def load_config(path: str | Path, kind: type = ComparisonConfig) -> Any:
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
    values: object, kind: type = ComparisonConfig, flags: Mapping[str, str] = MappingProxyType({})
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
        raise UserInputError(_sentence(first, flags)) from errors


def _sentence(error: Mapping[str, Any], flags: Mapping[str, str]) -> str:
    """Return a sentence about an error of pydantic, with the flag or the path of the key."""
    problem = requirement(error)
    value = error["input"]
    if problem.startswith("must") and isinstance(value, str | int | float):
        problem = f"{str(value)[:60]!r} {problem}"
    if not error["loc"]:
        # The error is of the whole configuration, and most messages then begin with a key.
        key, colon, rest = problem.partition(": ")
        if colon:
            return f"{flags.get(key, key)}: {rest}."
        return f"{problem}."
    path = [str(part) for part in error["loc"]]
    name = ".".join(path)
    for key in path:
        if key in flags:
            name = flags[key]
    return f"{name}: {problem}."


def as_mapping(comparison: ComparisonConfig) -> dict:
    """Return the plain values of a comparison, for :func:`from_mapping`."""
    plain = TypeAdapter(ComparisonConfig).dump_python(comparison, mode="json", exclude_none=True)
    if len(comparison.lr) == 1:
        # A list would look like tuning.
        plain["lr"] = comparison.lr[0]
    return plain
