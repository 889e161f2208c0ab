"""Types of the options of an evaluation, which pydantic reads from the command line or from YAML.

:mod:`..experiment.values` has the types that only an experiment needs.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from .device import find_device

#: Pydantic settings of all descriptions. Unknown keys are errors. Numbers are accepted as
#: strings, because YAML reads the stride 64 or the corpus name 2024 as a number.
STRICT = ConfigDict(extra="forbid", coerce_numbers_to_str=True)


def as_list(value: object) -> list:
    """Return a list without repeated values. A single value stands for a list of one."""
    values = value if isinstance(value, list | tuple) else [value]
    unique: list = []
    for item in values:
        if item not in unique:  # values of YAML may be unhashable
            unique.append(item)
    return unique


def must(requirement: str) -> WrapValidator:
    """Return a validator with one message for whatever pydantic finds wrong with a value."""

    def read(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
        try:
            return validate(value)
        except ValidationError:
            raise ValueError(f"must {requirement}") from None

    return WrapValidator(read)


def as_json_object(value: object) -> dict:
    """Return a dictionary, which may be given as the text of a JSON object.

    Raises:
        ValueError: the value is neither.
    """
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except json.JSONDecodeError:
            value = None
    if not isinstance(value, dict):
        raise ValueError("must be a JSON object")
    return value


def check_device(name: str) -> str:
    """Check that a device exists on this machine, and return its name.

    Raises:
        ValueError: it does not.
    """
    if name not in ("auto", "cpu"):
        find_device(name)  # imports PyTorch
    return name


Item = TypeVar("Item")
#: Zero or more items. A single item may be given without a list.
ListOrItem = Annotated[tuple[Item, ...], BeforeValidator(as_list)]
#: The same, but at least one item.
NonEmptyListOrItem = Annotated[tuple[Item, ...], BeforeValidator(as_list), Field(min_length=1)]
Float = Annotated[float, Field(allow_inf_nan=False)]
PositiveInt = Annotated[int, Field(ge=1)]

#: Evaluation length in tokens.
Length = Annotated[PositiveInt, must("be a number of tokens")]
#: Tokens scored per window. ``full``: all of the window, so windows do not overlap.
Stride = Annotated[PositiveInt | Literal["full"], must("be 'full' or a number of tokens")]
#: Limit of a scored range. Results with a limit of 0 could not be told from those without one.
TokenCount = Annotated[PositiveInt, must("be a number of tokens of at least 1")]
#: Rules that find the documents of a text.
DocumentBoundaries = Literal["empty-lines", "titles"]
#: Options of a model by name.
Overrides = Annotated[dict[str, Any], BeforeValidator(as_json_object)]
#: Types of weights and activations.
Precision = Literal["fp32", "bf16", "fp16"]
Device = Annotated[str, AfterValidator(check_device)]
Gigabytes = Annotated[Float, Field(gt=0), must("be a positive number")]
