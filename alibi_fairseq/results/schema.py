"""The one format of every number this project reports (docs/results.md).

A results file holds a JSON object: result records (``cells``), the text (``corpus``), and how they
were measured (``provenance``). Losses are in bits per token, and their keys say so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from enum import Enum
from itertools import pairwise
from pathlib import PurePath
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, Json, ValidationError, model_validator

from alibi_fairseq.errors import UserInputError, requirement
from alibi_fairseq.results.training_command import model_options

#: Checkpoint with the lowest validation loss of a run.
BEST_CHECKPOINT = "checkpoint_best.pt"
#: Results file that a training writes into its save folder.
TRAINING_FILE = "training.json"

# Fraction of a number by which computations in float64 may differ.
_FLOAT_ERROR = 1e-9

NonEmptyStr = Annotated[str, Field(min_length=1)]
NonNegativeInt = Annotated[int, Field(ge=0, lt=2**63)]  # what any reader of JSON can hold
PositiveCount = Annotated[int, Field(ge=1, lt=2**63)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Bits = Annotated[float, Field(ge=0, lt=1024)]
TotalBits = Annotated[float, Field(ge=0, lt=2**73)]  # of any number of tokens
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Scalar = bool | Annotated[int, Field(gt=-(2**63), lt=2**63)] | float | str | None
Date = Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")]
_ABSENT: Any = None  # the key may be left out, but not be null


class Role(Enum):
    """What a key of a result record identifies; a key without a role is an outcome."""

    MODEL = "the model as evaluated, whatever its seed"
    RUN = "one training of the model"
    MEASUREMENT = "what was measured of a model"


class JsonObject(BaseModel):
    """JSON object of exactly the stated types, with finite numbers and any further keys."""

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)


class Hardware(JsonObject):
    cpu: NonEmptyStr | None
    cores: PositiveCount | None
    memory_gb: Positive | None
    gpu: NonEmptyStr | None


class Tokens(JsonObject):
    """The text's tokens, where the data have a manifest."""

    tokenizer: NonEmptyStr | None
    vocabulary: NonNegativeInt | None
    train_tokens: NonNegativeInt | None


class Provenance(JsonObject):
    command: NonEmptyStr
    git_commit: NonEmptyStr | None
    git_clean: bool | None
    data_sha256: Sha256 | None
    dictionary_sha256: Sha256 | None
    versions: dict[str, NonEmptyStr | None]
    hardware: Hardware
    threads: PositiveCount | None
    precision: NonEmptyStr | None
    seed: NonNegativeInt | None
    date: Date
    seconds: NotNegative
    text: Tokens | None = None
    parts: list[Provenance] = []


class ResultRecord(JsonObject):
    """Result record: known keys, and any further numbers, text, flags, and lists of numbers."""

    __pydantic_extra__: dict[str, Scalar | list[float]]

    name: NonEmptyStr = _ABSENT
    position_method: Annotated[NonEmptyStr, Role.MODEL] = _ABSENT
    display_name: NonEmptyStr = _ABSENT
    train_length: Annotated[PositiveCount, Role.MODEL] = _ABSENT
    length: Annotated[PositiveCount, Role.MEASUREMENT] = _ABSENT
    stride: Annotated[PositiveCount, Role.MEASUREMENT] = _ABSENT
    longest_window: PositiveCount = _ABSENT
    subset: Annotated[NonEmptyStr, Role.MEASUREMENT] = _ABSENT
    model: Annotated[NonEmptyStr, Role.MODEL] = _ABSENT
    checkpoint: Annotated[NonEmptyStr, Role.RUN] = _ABSENT
    updates: Annotated[NonNegativeInt, Role.MODEL] = _ABSENT
    seed: Annotated[NonNegativeInt | None, Role.RUN] = None
    precision: Annotated[NonEmptyStr, Role.MODEL] = _ABSENT
    model_overrides: Annotated[Json[dict], Role.MODEL] = _ABSENT
    label: Annotated[str | None, Role.MODEL] = None
    lr: Annotated[float | None, Role.MODEL] = None
    memory_length: Annotated[NonNegativeInt | None, Role.MODEL] = None
    train_command: Annotated[str | None, Role.MODEL] = None
    corpus: Annotated[str | None, Role.MEASUREMENT] = None
    documents: Annotated[str | None, Role.MEASUREMENT] = None
    score_from: Annotated[NonNegativeInt | None, Role.MEASUREMENT] = None
    score_to: Annotated[NonNegativeInt | None, Role.MEASUREMENT] = None
    shard: None = None  # earlier versions wrote parts of an evaluation
    tokens: Annotated[PositiveCount, Role.MEASUREMENT] = _ABSENT
    text_sha256: Sha256 = _ABSENT
    tokens_sha256: Annotated[Sha256, Role.MEASUREMENT] = _ABSENT
    words: PositiveCount = _ABSENT
    bytes: PositiveCount = _ABSENT
    loss_bits: Bits = _ABSENT
    perplexity: Positive = _ABSENT
    word_perplexity: Positive | None = None
    bits_per_byte: NotNegative | None = None
    document_tokens: list[NonNegativeInt] = _ABSENT
    document_bits: list[TotalBits] = _ABSENT
    position_ends: list[PositiveCount] = _ABSENT
    position_tokens: list[NonNegativeInt] = _ABSENT
    position_bits: list[TotalBits] = _ABSENT
    processes: PositiveCount = _ABSENT
    parameters: Annotated[PositiveCount, Role.MODEL] = _ABSENT
    layers: Annotated[PositiveCount, Role.MODEL] = _ABSENT
    width: Annotated[PositiveCount, Role.MODEL] = _ABSENT
    vocabulary: Annotated[PositiveCount, Role.MODEL] = _ABSENT
    tokens_per_second: Positive = _ABSENT
    tokens_per_second_batch_1: Positive = _ABSENT
    gpu_hours: NotNegative = _ABSENT
    peak_memory_mb: Positive | None = None
    phase: Literal["train", "evaluate"] = _ABSENT
    baseline: NonEmptyStr | None = None
    ratio: Positive | None = None
    depth: Annotated[Share, Role.MEASUREMENT] = _ABSENT
    trials: PositiveCount = _ABSENT
    accuracy: Share = _ABSENT
    chance: Share = _ABSENT

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> ResultRecord:
        if self.stride is not None and self.length is not None and self.stride > self.length:
            raise ValueError("stride must not be larger than length")
        if self.loss_bits is not None:
            self._check_loss(self.loss_bits)
        if self.document_tokens is not None and self.document_bits is not None:
            self._check_parts("document", self.document_tokens, self.document_bits)
        positions = (self.position_ends, self.position_tokens, self.position_bits)
        if positions != (None, None, None):
            self._check_positions(*positions)
        return self

    def _check_loss(self, loss_bits: float) -> None:
        """Check the other measures of the loss, within the precision that they are printed with."""
        loss = _interval(loss_bits)
        if self.perplexity is not None and not _overlap(loss, _log2_interval(self.perplexity)):
            raise ValueError(
                f"perplexity must be 2^loss_bits, not {self.perplexity!r} "
                f"with a loss of {loss_bits!r}; the loss must be in bits"
            )
        if self.tokens is None:
            return
        if self.word_perplexity is not None and self.words is not None:
            per_word = _scaled(loss, self.tokens / self.words)
            if not _overlap(per_word, _log2_interval(self.word_perplexity)):
                raise ValueError(
                    "word_perplexity must be 2^(loss_bits × tokens / words), "
                    f"not {self.word_perplexity!r}"
                )
        if self.bits_per_byte is not None and self.bytes is not None:
            per_byte = _scaled(loss, self.tokens / self.bytes)
            if not _overlap(per_byte, _interval(self.bits_per_byte)):
                raise ValueError(
                    f"bits_per_byte must be loss_bits × tokens / bytes, not {self.bits_per_byte!r}"
                )

    def _check_positions(
        self, ends: list[int] | None, tokens: list[int] | None, bits: list[float] | None
    ) -> None:
        """Check that the buckets are in order and add up to the whole."""
        if ends is None or tokens is None or bits is None:
            raise ValueError("position_ends, position_tokens, and position_bits need one another")
        if len(ends) != len(tokens):
            raise ValueError("position_ends and position_tokens must have the same length")
        if any(end >= following for end, following in pairwise(ends)):
            raise ValueError("position_ends must increase")
        self._check_parts("position", tokens, bits)

    def _check_parts(self, kind: str, tokens: list[int], bits: list[float]) -> None:
        """Check that documents or positions add up to the whole.

        Args:
            kind: ``document`` or ``position``.
        """
        if len(tokens) != len(bits):
            raise ValueError(f"{kind}_tokens and {kind}_bits must have the same length")
        if self.tokens is not None and sum(tokens) != self.tokens:
            raise ValueError(f"{kind}_tokens must add up to tokens, not to {sum(tokens)}")
        if self.tokens is None or self.loss_bits is None or not bits:
            return
        # The numbers of a list have the same number of decimals; the last ones may be zeros.
        rounding = len(bits) * min(_rounding(value) for value in bits)
        total = math.fsum(bits)
        whole = _scaled(_interval(self.loss_bits), self.tokens)
        if not _overlap(whole, (total - rounding, total + rounding)):
            raise ValueError(f"{kind}_bits must add up to loss_bits × tokens, not to {total!r}")


def _rounding(value: float) -> float:
    """Return half a unit of the last digit of a number as JSON writes it."""
    exponent = Decimal(repr(value)).as_tuple().exponent
    assert isinstance(exponent, int)  # the schema has no infinities
    return 10.0**exponent / 2


def _interval(value: float) -> tuple[float, float]:
    """Return the smallest and the largest number that is printed as ``value``."""
    return value - _rounding(value), value + _rounding(value)


def _log2_interval(value: float) -> tuple[float, float]:
    """Return the base-2 logarithms of :func:`_interval` of a positive number."""
    low, high = _interval(value)
    return math.log2(low), math.log2(high)


def _scaled(interval: tuple[float, float], factor: float) -> tuple[float, float]:
    low, high = interval
    return low * factor, high * factor


def _overlap(one: tuple[float, float], other: tuple[float, float]) -> bool:
    """Return True if two intervals share a number, up to the error of float64."""
    slack = _FLOAT_ERROR * max(1.0, abs(one[1]), abs(other[1]))
    return one[0] <= other[1] + slack and other[0] <= one[1] + slack


_LOSS = ("position_method", "train_length", "subset", "loss_bits")
#: Keys that every result record of a kind of results file has.
KINDS: dict[str, tuple[str, ...]] = {
    "evaluation": (*_LOSS, "length", "stride", "tokens", "perplexity"),
    "training": (*_LOSS, "updates"),
    "benchmark": ("name", "baseline", "ratio"),
    "probe": (
        *("position_method", "train_length", "length", "depth", "gap", "trials"),
        *("accuracy", "chance"),
    ),
}


class ResultsFile(JsonObject):
    schema_: Literal["alibi_fairseq/results"] = Field(alias="schema")
    version: Literal[1]
    kind: Literal["evaluation", "training", "benchmark", "probe"]
    corpus: NonEmptyStr
    provenance: Provenance
    cells: list[ResultRecord]


# In a benchmark whatever is not measured describes the case: all text, flags and whole numbers.
_MEASURED = (
    *("tokens_per_second", "step_ms", "peak_memory_mb", "seconds", "round_seconds", "ratio"),
)


def keys_of(*roles: Role) -> tuple[str, ...]:
    """Return the keys of a result record that have one of these roles."""
    fields = ResultRecord.model_fields.items()
    return tuple(key for key, info in fields if not {*roles}.isdisjoint(info.metadata))


_KEYS = {role: keys_of(role) for role in Role}


def identity(facts: Mapping[str, Any], *roles: Role) -> tuple:
    """Return what identifies a model, a run or a measurement, as (key, value) pairs.

    Every comparison of results uses it: two records measure the same thing if they agree in all
    roles, and two models differ at most in their seed if they agree in ``Role.MODEL``. Unknown
    values are left out. Of a training command only the options that determine the model count, and
    boundaries of documents only where they decide which tokens are scored. The update count
    identifies the model, except for ``checkpoint_best.pt``: seeds reach their lowest validation
    loss after different numbers of updates, so there it identifies the run.

    Args:
        facts: a result record, with the values of its results file where these are to count.
        roles: all by default.
    """
    values = {}
    for role in roles or Role:
        for key in _KEYS[role]:
            values[key] = facts.get(key)
    if values.get("train_command"):
        values["train_command"] = model_options(facts["train_command"])
    of_model_only = bool(roles) and Role.RUN not in roles
    if of_model_only and is_best_checkpoint(facts.get("checkpoint")):
        values.pop("updates", None)
    if facts.get("score_from") is None and facts.get("score_to") is None:
        values.pop("documents", None)
    return tuple((key, value) for key, value in values.items() if value is not None)


def is_best_checkpoint(checkpoint: str | None) -> bool:
    """Return True if a checkpoint is the one with the lowest validation loss of its run."""
    return checkpoint is not None and PurePath(checkpoint).name == BEST_CHECKPOINT


def record_identity(kind: str, record: dict) -> tuple:
    """Return what distinguishes a result record from the others of its results file."""
    if kind != "benchmark":
        return identity(record)
    descriptive = record.keys() - {*_MEASURED}
    keys = sorted(key for key in descriptive if not isinstance(record[key], float))
    return tuple((key, record[key]) for key in keys if record[key] is not None)


def validate_results(results: Any, source: str = "the results") -> dict:
    """Return the content of a results file if it is valid.

    Raises:
        UserInputError: naming ``source`` and the first key that is wrong.
    """
    check(ResultsFile, results, source)
    kind: str = results["kind"]
    first_index: dict[tuple, int] = {}
    for index, record in enumerate(results["cells"]):
        for key in KINDS[kind]:
            if key not in record:
                raise UserInputError(f"{source}: cells[{index}].{key} is missing.")
        first = first_index.setdefault(record_identity(kind, record), index)
        if first != index:
            raise UserInputError(
                f"{source}: cells[{index}] measures the same thing as cells[{first}]; keep one of "
                "them."
            )
    return results


def check(model: type[BaseModel], content: object, source: str) -> None:
    """Validate content.

    Raises:
        UserInputError: naming ``source``, the first key that is wrong, and what it should be.
    """
    try:
        model.model_validate(content)
    except ValidationError as error:
        raise UserInputError(f"{source}: {_first_problem(error)}.") from error


def _first_problem(error: ValidationError) -> str:
    """Describe the first problem that pydantic found."""
    problem = error.errors(include_url=False)[0]
    path = "".join(f"[{k}]" if isinstance(k, int) else f".{k}" for k in problem["loc"])
    key = path.removeprefix(".") or "the content"
    if problem["type"] == "missing":
        return f"{key} is missing"
    required = requirement(problem)
    if problem["type"] == "value_error" and isinstance(problem["input"], dict):
        return f"{key} contradicts itself: {required}"
    value = "null" if problem["input"] is None else repr(problem["input"])
    if len(value) > 60:
        value = value[:57] + "..."
    return f"{key} is {value}: {required}"
