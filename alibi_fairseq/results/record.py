"""Records of results: the one format of every number this project reports (docs/results.md).

Each record is complete by itself: it has its model and its text. Losses are in bits per token, and
their keys say so. Numbers that follow from others are properties.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, TypeVar

from .json_types import (
    Bits,
    Fraction,
    NonEmptyStr,
    NonNegativeInt,
    NotNegative,
    Positive,
    PositiveCount,
    Scalar,
    Sha256,
    StrictObject,
    TotalBits,
)
from .model import Model

#: Fraction of the bits per token of guessing, above which a model is near chance.
CHANCE_FRACTION = 0.9
#: Largest loss in bits whose perplexity is a number of float64.
MAX_BITS = 1023
AnyRecord = TypeVar("AnyRecord", bound="ModelRecord")


class TextSummary(StrictObject):
    """Summary of the training data: tokenizer, size of the dictionary, and size of the split."""

    tokenizer: NonEmptyStr | None
    vocabulary: NonNegativeInt | None
    train_tokens: NonNegativeInt | None
    train_bytes: NonNegativeInt | None = None


class TextKey(NamedTuple):
    """Identity of the predicted tokens. None means unknown, or no limit of the scored range.

    Attributes:
        documents: how documents are separated, if a range of each document is scored.
        documents_sha256: hash of the positions where documents begin, if ``documents`` is known.
        tokens_sha256: hash of the token IDs of a raw text.
    """

    subset: str
    data_sha256: str | None
    tokens: int | None
    documents: str | None
    score_from: int | None
    score_to: int | None
    documents_sha256: str | None = None
    tokens_sha256: str | None = None

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


class ModelRecord(StrictObject):
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
        split_sha256: hash of the split, if several were evaluated together.
        stride: tokens scored per window.
        tokens: number of scored tokens.
        loss_bits: mean of −log₂ p over the scored tokens.
        words, bytes: size of the scored text, newlines included.
        unigram_bits: entropy of the token frequencies of the split.
        tokens_sha256: hash of the token IDs of a raw text.
        documents: document boundaries.
        documents_sha256: hash of the positions where documents begin.
        score_from, score_to: scored range of the split, or of each document.
        document_tokens, document_bits: number of tokens and total loss of each document.
        position_ends: last position of each bucket of the loss by position.
        position_tokens, position_bits: number of tokens and total loss of each bucket.
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
    split_sha256: Sha256 | None = None
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
        return (self.model.key, self.model.checkpoint_key, self.case_key)

    @property
    def case_key(self) -> tuple:
        """Identity of the measurement among all measurements of a model."""
        return (self.corpus, self.text_key, self.length, self.stride)

    @property
    def outcome(self) -> float | None:
        """Number that must agree when files with the same measurement are merged."""
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
    def status(self) -> str:
        """Reason why there is no perplexity, which only numbers of the paper have."""
        return ""

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
            documents_sha256=self.documents_sha256 if has_range else None,
            tokens_sha256=self.tokens_sha256,
        )

    @property
    def is_raw_text(self) -> bool:
        """True if the text was tokenized for the evaluation.

        ``data_sha256`` is then the hash of the text instead of the binary data.
        """
        return self.tokens_sha256 is not None

    @property
    def nonoverlapping(self) -> bool:
        """True if every window scores all of its tokens."""
        return self.stride == self.length


class ProbeMeasurement(ModelRecord):
    """Accuracy of one model on the sequences of a probe of one length and depth.

    Attributes:
        corpus: name of the probe.
        data_sha256: hash of the training data of the probe.
        depth: depth of the repeated block.
        gap: number of fillers between the two blocks.
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
        return (self.model.key, self.model.checkpoint_key, self.case_key)

    @property
    def case_key(self) -> tuple:
        """Identity of the measurement among all measurements of a model."""
        return (self.corpus, self.data_sha256, self.length, self.depth)

    @property
    def outcome(self) -> float:
        """Number that must agree when files with the same measurement are merged."""
        return self.accuracy


#: Record of an evaluation.
AnyMeasurement = Measurement | ProbeMeasurement


class Validation(ModelRecord):
    """Validation of a model during its training. Times and speeds count from its beginning.

    Attributes:
        model: the model, with the update count of the validation.
        length: tokens per sample.
        tokens: number of tokens of the split.
        loss_bits: None if the loss, or its perplexity, was not finite.
        trained_tokens: tokens trained on in all processes.
        hours, gpu_hours: duration with validation and saving; the same times the number of GPUs.
        tokens_per_second: speed of the updates alone, in all processes.
        tokens_per_second_per_process: the same per process, whose number may have changed.
    """

    subset: NonEmptyStr
    length: PositiveCount | None = None
    tokens: PositiveCount | None = None
    loss_bits: Bits | None = None
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
        return (self.model.key, self.model.checkpoint_key, self.subset)

    @property
    def outcome(self) -> float | None:
        """Number that must agree when files with the same measurement are merged."""
        return self.loss_bits


class Benchmark(StrictObject):
    """Measurement of speed or memory.

    Attributes:
        name: what was measured.
        case: values that identify the measurement, together with the name.
        measured: measured values.
        baseline: variant that ``ratio`` refers to. Null if nothing is compared.
        ratio: speed relative to the baseline in the same run.
    """

    name: NonEmptyStr
    case: dict[str, Scalar]
    measured: dict[str, Scalar | list[float]]
    baseline: NonEmptyStr | None = None
    ratio: Positive | None = None

    @property
    def values(self) -> dict[str, Any]:
        """All values by name."""
        return {"name": self.name, **self.case, **self.measured, "ratio": self.ratio}

    @property
    def key(self) -> tuple:
        """Identity of the measurement."""
        return (self.name, tuple(sorted(self.case.items())))

    @property
    def outcome(self) -> Mapping[str, Any]:
        """Numbers that must agree when files with the same measurement are merged."""
        return self.measured


def is_chance(perplexity: float | None, vocabulary: int | None) -> bool:
    """Return True if a perplexity is about as good as guessing.

    Guessing any entry of a dictionary of V entries has a perplexity of V. A perplexity of at least
    V^0.9 counts as chance. Without a perplexity or vocabulary, the result is False.
    """
    if perplexity is None or vocabulary is None:
        return False
    return math.log(perplexity) >= CHANCE_FRACTION * math.log(vocabulary)
