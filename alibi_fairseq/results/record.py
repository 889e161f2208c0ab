"""The one format of every number this project reports (docs/results.md).

A results file has records of one kind, the text, and their provenance. Each record is complete by
itself: it has its model and its text. Losses are in bits per token, and their keys say so. Numbers
that follow from others are properties.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import Annotated, Any, ClassVar, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..errors import UserInputError, requirement
from ..positions.spec import method_name

#: Checkpoint with the lowest validation loss of a run.
BEST_CHECKPOINT = "checkpoint_best.pt"
#: Fraction of the bits per token of guessing, above which a model is near chance.
CHANCE_FRACTION = 0.9
#: Largest loss in bits whose perplexity is a number of float64.
MAX_BITS = 1023

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


T = TypeVar("T", bound=BaseModel)
AnyRecord = TypeVar("AnyRecord", bound="ModelRecord")


class JsonObject(BaseModel):
    """JSON object of exactly the stated types, with finite numbers and any further keys."""

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)


class Record(BaseModel):
    """JSON object of exactly the stated keys and types, with finite numbers."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class Hardware(JsonObject):
    """Machine of a measurement. Null means unknown, or no GPU."""

    cpu: NonEmptyStr | None
    cores: PositiveCount | None
    memory_gb: Positive | None
    gpu: NonEmptyStr | None
    cpu_family: str | None = None
    cpu_model: str | None = None


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
    parts: list[Provenance] = []


class TextSummary(Record):
    """Tokenizer, dictionary size, and size of the training split of the data."""

    tokenizer: NonEmptyStr | None
    vocabulary: NonNegativeInt | None
    train_tokens: NonNegativeInt | None
    train_bytes: NonNegativeInt | None = None


class Model(Record):
    """Trained model as it was evaluated. None means unknown.

    Attributes:
        position_method: position method of all layers.
        display_name: name of a method with options or of a plugin in tables.
        plugin_sha256: hash of the source files of the plugin; None for a method of this package.
        architecture: registered name of the architecture.
        train_length: training length in tokens.
        parameters: number of parameters; shared ones count once.
        options: further options of the training that determine the model, as text, by the name of
            their field. The text of a flag is empty.
        seed: seed of the training.
        updates: update count of the checkpoint.
        checkpoint: path of the checkpoint when it was evaluated.
        checkpoint_sha256: hash of the checkpoint, or of all parts of a Hugging Face folder.
        precision: precision of weights and activations.
        overrides: options changed for the evaluation.
        memory_length: past states per layer that the model attends to.
        label: name of a set of overrides.
    """

    position_method: NonEmptyStr
    display_name: NonEmptyStr | None = None
    plugin_sha256: Sha256 | None = None
    architecture: NonEmptyStr | None = None
    train_length: PositiveCount
    layers: PositiveCount | None = None
    width: PositiveCount | None = None
    parameters: PositiveCount | None = None
    vocabulary: PositiveCount | None = None
    options: dict[str, str] | None = None
    seed: NonNegativeInt | None = None
    updates: NonNegativeInt | None = None
    checkpoint: NonEmptyStr | None = None
    checkpoint_sha256: Sha256 | None = None
    config_sha256: Sha256 | None = None
    weights_sha256: Sha256 | None = None
    tokenizer_sha256: Sha256 | None = None
    precision: NonEmptyStr | None = None
    overrides: dict[str, Any] | None = None
    memory_length: PositiveCount | None = None
    label: NonEmptyStr | None = None

    @property
    def method_name(self) -> str:
        """Name of the position method in tables."""
        return self.display_name or method_name(self.position_method)

    @property
    def key(self) -> tuple:
        """Identity of the model, which its seeds share.

        Seeds reach their lowest validation loss after different numbers of updates.
        """
        return (
            *self.training_key,
            None if self.is_best_checkpoint else self.updates,
            self.precision,
            self.overrides_text,
            self.memory_length,
            self.label,
        )

    @property
    def training_key(self) -> tuple:
        """Identity of the model as trained, which its seeds and variants share."""
        options = None if self.options is None else tuple(sorted(self.options.items()))
        return (
            self.position_method,
            self.plugin_sha256,
            self.train_length,
            self.architecture,
            self.parameters,
            self.layers,
            self.width,
            self.vocabulary,
            options,
        )

    @property
    def run_key(self) -> tuple:
        """Identity of the checkpoint among those of equal models.

        A known hash identifies it together with the file name, wherever its folder is.
        """
        updates = self.updates if self.is_best_checkpoint else None
        if self.checkpoint_sha256 is None:
            return (self.checkpoint, self.seed, updates)
        return (self.checkpoint_name, self.checkpoint_sha256, updates)

    @property
    def checkpoint_name(self) -> str | None:
        """File name of the checkpoint."""
        return None if self.checkpoint is None else PurePath(self.checkpoint).name

    @property
    def is_best_checkpoint(self) -> bool:
        """True if the checkpoint is the one with the lowest validation loss of its run."""
        return self.checkpoint_name == BEST_CHECKPOINT

    @property
    def overrides_text(self) -> str | None:
        """Overridden options as JSON, or None."""
        return json.dumps(self.overrides, sort_keys=True) if self.overrides else None

    @property
    def planned_updates(self) -> int | None:
        """Number of updates that the training was asked for."""
        return _whole_number((self.options or {}).get("max_update", ""))

    @property
    def tokens_per_update(self) -> int | None:
        """Tokens per update that the training was asked for. The last of a pass may have fewer."""
        values = self.options or {}
        processes = _whole_number(values.get("distributed_world_size", ""))
        passes = _whole_number(values.get("update_freq", "1"))
        multiple = _whole_number(values.get("required_batch_size_multiple", "8"))  # default
        limits = []
        max_tokens = _whole_number(values.get("max_tokens", ""))
        if max_tokens:
            limits.append(max_tokens // self.train_length)
        for option in ("batch_size", "max_sentences"):
            sequences = _whole_number(values.get(option, ""))
            if sequences:
                limits.append(sequences)
        if not (processes and passes and multiple and limits):
            return None
        sequences = min(limits)
        if sequences > multiple:
            sequences -= sequences % multiple
        return processes * passes * sequences * self.train_length

    @property
    def options_of_any_corpus(self) -> tuple[tuple[str, str], ...]:
        """Options of the training without those that depend on the data.

        The learning rate is tuned on it, and the size of its validation split determines how often
        a run is saved.
        """
        options = dict(self.options or {})
        for name in ("data", "lr", "save_interval_updates"):
            options.pop(name, None)
        return tuple(sorted(options.items()))


class TextKey(NamedTuple):
    """Identity of the predicted tokens. None means unknown, or no limit of the scored range.

    Attributes:
        documents: how documents are separated. Unless a range of each document is scored, it
            matters only for a raw text, whose tokens do not span documents.
        tokens_sha256: hash of the token IDs of a raw text.
        bytes: size of a raw text. It replaces ``tokens`` and ``tokens_sha256`` where tokenizers may
            differ (:attr:`Measurement.raw_text_key`).
    """

    subset: str
    data_sha256: str | None
    tokens: int | None
    documents: str | None
    score_from: int | None
    score_to: int | None
    tokens_sha256: str | None = None
    bytes: int | None = None

    @property
    def has_range(self) -> bool:
        """True if only a range of the tokens is scored."""
        return self.score_from is not None or self.score_to is not None

    @property
    def scored(self) -> str:
        """The scored range in words."""
        if not self.has_range:
            if self.documents:
                return f"all scored, tokenized by document ({self.documents})"
            return "all scored"
        begin = self.score_from or 0
        end = "the end" if self.score_to is None else f"{self.score_to:,}"
        scored = f"tokens {begin:,} to {end}"
        if self.documents:
            scored += f" of each document ({self.documents})"
        return scored


class ModelRecord(Record):
    """Record of one model."""

    model: Model

    def with_model(self: AnyRecord, **changes: Any) -> AnyRecord:
        """Return a copy whose model has other values."""
        return self.model_copy(update={"model": self.model.model_copy(update=changes)})


class Measurement(ModelRecord):
    """Loss of one model on one split at one length and stride.

    Attributes:
        corpus: name of the text.
        text: tokenizer and sizes of the data.
        data_sha256: hash of the evaluated splits, or of the text file.
        stride: tokens scored per window.
        tokens: number of scored tokens.
        loss_bits: mean of −log₂ p over the scored tokens.
        words, bytes: size of the scored text, newlines included.
        unigram_bits: entropy of the token frequencies of the split.
        tokens_sha256: hash of the token IDs of a raw text.
        documents: document boundaries.
        documents_sha256: hash of the positions where documents begin.
        score_from, score_to: scored range of the split, or of each document.
        document_tokens, document_bits: number of tokens and loss of each document.
        position_ends: last position of each bucket of the loss by position.
        position_tokens, position_bits: number of tokens and loss of each bucket.
        position_errors: standard error of the mean loss of each bucket over windows, in bits per
            token; None for a bucket of one window.
        longest_window: tokens of the longest window.
        min_context, mean_context: context of the scored tokens.
        seconds: duration of the forward passes.
        tokens_per_second_batch_1: speed at one window at a time.
    """

    corpus: NonEmptyStr | None = None
    text: TextSummary | None = None
    data_sha256: Sha256 | None = None
    subset: str
    length: PositiveCount
    stride: PositiveCount
    tokens: PositiveCount | None = None
    loss_bits: Bits | None = None
    words: PositiveCount | None = None
    bytes: PositiveCount | None = None
    unigram_bits: Bits | None = None
    tokens_sha256: Sha256 | None = None
    documents: NonEmptyStr | None = None
    documents_sha256: Sha256 | None = None
    score_from: NonNegativeInt | None = None
    score_to: NonNegativeInt | None = None
    document_tokens: list[NonNegativeInt] = []
    document_bits: list[TotalBits] = []
    position_ends: list[PositiveCount] = []
    position_tokens: list[NonNegativeInt] = []
    position_bits: list[TotalBits] = []
    position_errors: list[NotNegative | None] = []
    longest_window: PositiveCount | None = None
    min_context: NonNegativeInt | None = None
    mean_context: NotNegative | None = None
    windows_per_batch: PositiveCount | None = None
    device: NonEmptyStr | None = None
    seconds: NotNegative | None = None
    tokens_per_second: Positive | None = None
    tokens_per_second_batch_1: Positive | None = None
    peak_memory_mb: Positive | None = None

    @property
    def key(self) -> tuple:
        """Identity of the measurement. Two with the same key have the same loss."""
        return (self.model.key, self.model.run_key, self.case_key)

    @property
    def case_key(self) -> tuple:
        """Identity of the measurement among those of one model."""
        return (self.corpus, self.text_key, self.length, self.stride)

    @property
    def outcome(self) -> float | None:
        """The measured number."""
        return self.loss_bits

    @property
    def perplexity(self) -> float | None:
        """Perplexity per token."""
        return None if self.loss_bits is None else 2.0**self.loss_bits

    @property
    def bits_per_byte(self) -> float | None:
        """Bits per byte of the text."""
        if self.loss_bits is None or self.tokens is None or self.bytes is None:
            return None
        return self.loss_bits * self.tokens / self.bytes

    @property
    def word_perplexity(self) -> float | None:
        """Perplexity per word; None if it exceeds float64, as for a text with few spaces."""
        if self.loss_bits is None or self.tokens is None or self.words is None:
            return None
        bits_per_word = self.loss_bits * self.tokens / self.words
        return 2.0**bits_per_word if bits_per_word <= MAX_BITS else None

    @property
    def seeds(self) -> int:
        """Number of averaged seeds."""
        return 1

    @property
    def spread(self) -> float | None:
        """Standard deviation of the perplexity over averaged seeds."""
        return None

    @property
    def position_spread(self) -> list[float]:
        """Standard deviation of ``position_bits`` over averaged seeds."""
        return []

    @property
    def status(self) -> str:
        """Reason why there is no perplexity."""
        return ""

    @property
    def is_near_chance(self) -> bool:
        """True if the perplexity is about as good as guessing (:func:`is_chance`)."""
        return is_chance(self.perplexity, self.model.vocabulary)

    @property
    def text_key(self) -> TextKey:
        """Key of the predicted tokens. Only perplexities of the same tokens are comparable."""
        has_range = self.score_from is not None or self.score_to is not None
        return TextKey(
            subset=self.subset,
            data_sha256=self.data_sha256,
            tokens=self.tokens,
            documents=self.documents if has_range else None,
            score_from=self.score_from,
            score_to=self.score_to,
            tokens_sha256=self.tokens_sha256,
        )

    @property
    def is_raw_text(self) -> bool:
        """True if the text was tokenized for the evaluation.

        ``data_sha256`` is then the hash of the text instead of the binary data.
        """
        return self.tokens_sha256 is not None

    @property
    def raw_text_key(self) -> TextKey:
        """Key of the predicted text, whatever its tokenizer.

        Bits per byte of the same text are comparable between tokenizers. A tokenizer gives other
        tokens to a whole text than to its documents, so these are different texts.
        """
        return self.text_key._replace(
            tokens=None, tokens_sha256=None, bytes=self.bytes, documents=self.documents
        )

    @property
    def is_past_end(self) -> bool:
        """True if one window has the whole text, which is shorter than the evaluation length.

        Longer windows repeat its measurement. Sliding windows may be short near the end of a longer
        text, too, and then have other measurements at other lengths.
        """
        if self.longest_window is None or not self.nonoverlapping:
            return False
        return self.longest_window < self.length

    @property
    def nonoverlapping(self) -> bool:
        """True if every window scores all of its tokens."""
        return self.stride == self.length

    @property
    def window_kind(self) -> str:
        """The kind of windows, which distinguishes two measurements at one length."""
        return "non-overlapping" if self.nonoverlapping else f"S={self.stride}"


class ProbeMeasurement(ModelRecord):
    """Accuracy of one model on the sequences of a probe of one length and depth.

    Attributes:
        corpus: name of the probe.
        data_sha256: hash of the training data of the probe.
        depth: depth of the repeated block.
        gap: distance of the symbols from their first occurrence.
        trials: number of sequences.
        chance: accuracy of guessing.
    """

    corpus: NonEmptyStr | None = None
    data_sha256: Sha256 | None = None
    length: PositiveCount
    depth: Fraction
    gap: NonNegativeInt
    trials: PositiveCount
    accuracy: Fraction
    chance: Fraction
    device: NonEmptyStr | None = None

    subset: ClassVar[str] = ""  # the sequences are drawn for the evaluation

    @property
    def key(self) -> tuple:
        """Identity of the measurement. Two with the same key have the same accuracy."""
        return (self.model.key, self.model.run_key, self.case_key)

    @property
    def case_key(self) -> tuple:
        """Identity of the measurement among those of one model."""
        return (self.corpus, self.data_sha256, self.length, self.depth)

    @property
    def outcome(self) -> float:
        """The measured number."""
        return self.accuracy


#: Record of an evaluation.
AnyMeasurement = Measurement | ProbeMeasurement


class Validation(ModelRecord):
    """Validation of a model during its training. All other numbers are since its beginning.

    Attributes:
        model: the model, with the update count of the validation.
        length: tokens per sample.
        tokens: number of tokens of the split.
        trained_tokens: tokens trained on in all processes.
        hours, gpu_hours: duration with validation and saving; the same times the number of GPUs.
        tokens_per_second: speed of the updates alone, in all processes.
        tokens_per_second_per_process: the same per process, whose number may have changed.
    """

    subset: NonEmptyStr
    length: PositiveCount | None = None
    tokens: PositiveCount | None = None
    loss_bits: Bits
    trained_tokens: NonNegativeInt | None = None
    hours: NotNegative | None = None
    gpu_hours: NotNegative | None = None
    peak_memory_mb: NotNegative | None = None
    tokens_per_second: Positive | None = None
    tokens_per_second_per_process: Positive | None = None
    processes: PositiveCount | None = None
    device: NonEmptyStr | None = None

    @property
    def updates(self) -> int:
        """Update count of the validation."""
        assert self.model.updates is not None, "the training counts its updates"
        return self.model.updates

    @property
    def key(self) -> tuple:
        """Identity of the validation. Two with the same key have the same loss."""
        return (self.model.key, self.model.run_key, self.subset)

    @property
    def outcome(self) -> float:
        """The measured number."""
        return self.loss_bits


class Benchmark(Record):
    """Measurement of speed or memory.

    Attributes:
        name: what was measured.
        case: values that identify the measurement, together with the name and the model.
        measured: measured values.
        model: model that was measured, if it is one of a run.
        baseline: variant that ``ratio`` refers to. Null if nothing is compared.
        ratio: speed relative to the baseline in the same run.
    """

    name: NonEmptyStr
    case: dict[str, Scalar]
    measured: dict[str, Scalar | list[float]]
    model: Model | None = None
    baseline: NonEmptyStr | None = None
    ratio: Positive | None = None

    @property
    def values(self) -> dict[str, Any]:
        """All values by name."""
        return {"name": self.name, **self.case, **self.measured, "ratio": self.ratio}

    @property
    def key(self) -> tuple:
        """Identity of the measurement."""
        model = None if self.model is None else self.model.key
        return (self.name, tuple(sorted(self.case.items())), model)

    @property
    def outcome(self) -> Mapping[str, Any]:
        """The measured numbers."""
        return self.measured


class ResultsFile(Record):
    """Content of a results file.

    Attributes:
        kind: kind of its records.
        corpus: name of the text.
    """

    kind: ClassVar[str]

    corpus: NonEmptyStr
    provenance: Provenance
    records: list[Any]


class EvaluationFile(ResultsFile):
    """Results of ``alibi-fairseq eval`` on a text."""

    kind = "evaluation"
    records: list[Measurement]


class ProbeFile(ResultsFile):
    """Results of ``alibi-fairseq eval`` on a probe."""

    kind = "probe"
    records: list[ProbeMeasurement]


class TrainingFile(ResultsFile):
    """Record of a training, in its save folder."""

    kind = "training"
    records: list[Validation]


class BenchmarkFile(ResultsFile):
    """Results of benchmarks."""

    kind = "benchmark"
    records: list[Benchmark]


FILE_CLASSES: dict[str, type[ResultsFile]] = {
    file_class.kind: file_class
    for file_class in (EvaluationFile, ProbeFile, TrainingFile, BenchmarkFile)
}


def parse_json(model: type[T], content: object, source: str) -> T:
    """Return JSON content as a model.

    Raises:
        UserInputError: naming ``source``, the first key that is wrong, and the valid values.
    """
    try:
        return model.model_validate(content)
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
    value = "null" if problem["input"] is None else repr(problem["input"])
    if len(value) > 60:
        value = value[:57] + "..."
    return f"{key} is {value}: {required}"


def _whole_number(text: str) -> int | None:
    """Return the number of an option, which Hydra may write as a list; None for anything else."""
    match = re.fullmatch(r"\[?(\d+)\]?", text)
    return int(match[1]) if match else None


def is_chance(perplexity: float | None, vocabulary: int | None) -> bool:
    """Return True if a perplexity is about as good as guessing.

    Guessing any entry of a dictionary of V entries has a perplexity of V. A perplexity of at least
    V^0.9 counts as chance. Without a perplexity or vocabulary, the result is False.
    """
    if perplexity is None or vocabulary is None:
        return False
    return math.log(perplexity) >= CHANCE_FRACTION * math.log(vocabulary)
