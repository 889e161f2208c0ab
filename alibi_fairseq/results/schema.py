"""The one format of every number this project reports (docs/results.md).

A results file holds a JSON object: result records (``cells``), the text (``corpus``), and how they
were measured (``provenance``). Losses are in bits per token, and their keys say so.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, Json, ValidationError, model_validator

from ..errors import UserInputError, requirement
from .agreement import check_increasing, check_loss, check_sums
from .identity import is_copy, record_identity

#: Results file that a training writes into its save folder.
TRAINING_FILE = "training.json"

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
_ABSENT: Any = None  # the key may be left out, but not be null


class JsonObject(BaseModel):
    """JSON object of exactly the stated types, with finite numbers and any further keys."""

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)


class Hardware(JsonObject):
    """Machine of a measurement. Null means unknown, or no GPU."""

    cpu: NonEmptyStr | None
    cores: PositiveCount | None
    memory_gb: Positive | None
    gpu: NonEmptyStr | None


class TextSummary(JsonObject):
    """Tokenizer, dictionary size, and training tokens of the data, from their manifest."""

    tokenizer: NonEmptyStr | None
    vocabulary: NonNegativeInt | None
    train_tokens: NonNegativeInt | None


class Provenance(JsonObject):
    """Origin of the results, and of each part if results files were merged."""

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
    text: TextSummary | None = None
    parts: list[Provenance] = []


class ResultRecord(JsonObject):
    """Result record: known keys, and any further numbers, text, flags, and lists of numbers."""

    __pydantic_extra__: dict[str, Scalar | list[float]]

    name: NonEmptyStr = _ABSENT
    position_method: NonEmptyStr = _ABSENT
    display_name: NonEmptyStr = _ABSENT
    plugin_sha256: Sha256 = _ABSENT
    train_length: PositiveCount = _ABSENT
    length: PositiveCount = _ABSENT
    stride: PositiveCount = _ABSENT
    longest_window: PositiveCount = _ABSENT
    subset: NonEmptyStr = _ABSENT
    model: NonEmptyStr = _ABSENT
    checkpoint: NonEmptyStr = _ABSENT
    checkpoint_sha256: Sha256 = _ABSENT
    updates: NonNegativeInt = _ABSENT
    seed: NonNegativeInt | None = None
    precision: NonEmptyStr = _ABSENT
    device: NonEmptyStr = _ABSENT
    model_overrides: Json[dict] = _ABSENT
    label: str | None = None
    lr: float | None = None
    memory_length: NonNegativeInt | None = None
    train_command: str | None = None
    corpus: str | None = None
    documents: str | None = None
    documents_sha256: Sha256 = _ABSENT
    score_from: NonNegativeInt | None = None
    score_to: NonNegativeInt | None = None
    shard: None = None  # earlier versions wrote parts of an evaluation
    tokens: PositiveCount = _ABSENT
    text_sha256: Sha256 = _ABSENT
    tokens_sha256: Sha256 = _ABSENT
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
    parameters: PositiveCount = _ABSENT
    layers: PositiveCount = _ABSENT
    width: PositiveCount = _ABSENT
    vocabulary: PositiveCount = _ABSENT
    tokens_per_second: Positive = _ABSENT
    tokens_per_second_batch_1: Positive = _ABSENT
    evaluation_tokens_per_second: Positive = _ABSENT
    trained_tokens: NonNegativeInt = _ABSENT
    gpu_hours: NotNegative = _ABSENT
    peak_memory_mb: Positive | None = None
    phase: Literal["train", "evaluate"] = _ABSENT
    baseline: NonEmptyStr | None = None
    ratio: Positive | None = None
    depth: Fraction = _ABSENT
    trials: PositiveCount = _ABSENT
    accuracy: Fraction = _ABSENT
    chance: Fraction = _ABSENT

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> ResultRecord:
        """Check the numbers that determine one another."""
        if self.stride is not None and self.length is not None and self.stride > self.length:
            raise ValueError("stride must not be larger than length")
        if self.loss_bits is not None:
            check_loss(self)
        if self.document_tokens is not None and self.document_bits is not None:
            check_sums(self, "document", self.document_tokens, self.document_bits)
        positions = (self.position_ends, self.position_tokens, self.position_bits)
        if positions == (None, None, None):
            return self
        if None in positions:
            raise ValueError("position_ends, position_tokens, and position_bits need one another")
        check_increasing(self.position_ends, self.position_tokens)
        check_sums(self, "position", self.position_tokens, self.position_bits)
        return self


_LOSS = ("position_method", "train_length", "subset", "loss_bits")
#: Keys that every result record of a kind of results file has.
KINDS: dict[str, tuple[str, ...]] = {
    "evaluation": (*_LOSS, "length", "stride", "tokens", "perplexity"),
    "training": (*_LOSS, "updates"),
    "benchmark": ("name", "baseline", "ratio"),
    "probe": (
        "position_method",
        "train_length",
        "length",
        "depth",
        "gap",
        "trials",
        "accuracy",
        "chance",
    ),
}


class ResultsFile(JsonObject):
    """Content of a results file."""

    schema_: Literal["alibi_fairseq/results"] = Field(alias="schema")
    version: Literal[1]
    kind: Literal["evaluation", "training", "benchmark", "probe"]
    corpus: NonEmptyStr
    provenance: Provenance
    cells: list[ResultRecord]


def validate_results(results: Any, source: str = "the results") -> dict:
    """Validate the content of a results file, and return it.

    Raises:
        UserInputError: naming ``source`` and the first key that is wrong.
    """
    check_json(ResultsFile, results, source)
    kind: str = results["kind"]
    first_index: dict[tuple, int] = {}
    for index, record in enumerate(results["cells"]):
        for key in KINDS[kind]:
            if key not in record:
                raise UserInputError(f"{source}: cells[{index}].{key} is missing.")
        identity = record_identity(kind, record)
        first = first_index.setdefault(identity, index)
        if first != index and not is_copy(record, results["cells"][first]):
            raise UserInputError(
                f"{source}: cells[{index}] measures the same thing as cells[{first}]. "
                "Keep one of them."
            )
    return results


def check_json(model: type[BaseModel], content: object, source: str) -> None:
    """Check that JSON content has the keys and types of a model.

    Raises:
        UserInputError: naming ``source``, the first key that is wrong, and the valid values.
    """
    try:
        model.model_validate(content)
    except ValidationError as error:
        raise UserInputError(f"{source}: {_first_problem(error)}.") from error


def _first_problem(error: ValidationError) -> str:
    """Describe the first problem that pydantic found."""
    problem = error.errors(include_url=False)[0]
    path = ""
    for part in problem["loc"]:
        path += f"[{part}]" if isinstance(part, int) else f".{part}"
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
