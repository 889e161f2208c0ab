"""Types of the values in this project's JSON files, which pydantic validates."""

from __future__ import annotations

from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..errors import UserInputError, describe_invalid

NonEmptyStr = Annotated[str, Field(min_length=1)]
NonNegativeInt = Annotated[int, Field(ge=0, lt=2**63)]  # signed 64-bit
PositiveCount = Annotated[int, Field(ge=1, lt=2**63)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Bits = Annotated[float, Field(ge=0, lt=1024)]
TotalBits = Annotated[float, Field(ge=0, lt=2**73)]  # 2**63 tokens of less than 1024 bits
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Scalar = bool | Annotated[int, Field(gt=-(2**63), lt=2**63)] | float | str | None
Date = Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")]

#: Configuration of a dataclass whose values results files have.
STORED = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

T = TypeVar("T", bound=BaseModel)


class JsonObject(BaseModel):
    """JSON object of exactly the stated types, with finite numbers and any other keys."""

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)


class StrictObject(BaseModel):
    """JSON object of exactly the stated keys and types, with finite numbers."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


def parse_json(model: type[T], content: object, source: str) -> T:
    """Return JSON content as a model.

    Raises:
        UserInputError: naming ``source``, the first key that is wrong, and the valid values.
    """
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise UserInputError(f"{source}: {describe_invalid(error)}") from error
