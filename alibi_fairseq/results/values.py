"""Measured values of a result, what they cost, and what is known of the text."""

from __future__ import annotations

from dataclasses import dataclass

from .json_types import (
    STORED,
    Bits,
    Fraction,
    NonEmptyStr,
    NonNegativeInt,
    NotNegative,
    Positive,
    PositiveCount,
    TotalBits,
)

#: Largest loss in bits whose perplexity is a number of float64.
MAX_BITS = 1023


@dataclass(frozen=True)
class TextValues:
    """Loss on a text. Lists are empty if the evaluation did not measure them.

    Attributes:
        loss_bits: mean of −log₂ p over the scored tokens.
        tokens: number of scored tokens.
        words, bytes: size of the scored text, newlines included.
        unigram_bits: entropy of the token frequencies of the split; a model that ignores the
            context has at least this loss.
        documents: where the documents with known losses begin, as in the case.
        document_tokens, document_bits: number of tokens and total loss of each document.
        position_ends: last position of each bucket of the loss by position.
        position_tokens, position_bits: number of tokens and total loss of each bucket.
        position_errors: standard error over windows of the mean loss of each bucket, in bits per
            token; None for a bucket of one window.
        longest_window: tokens of the longest window; less than the length if the text is shorter.
        min_context, mean_context: context of the scored tokens.
    """

    __pydantic_config__ = STORED

    loss_bits: Bits
    tokens: PositiveCount | None = None
    words: PositiveCount | None = None
    bytes: PositiveCount | None = None
    unigram_bits: Bits | None = None
    documents: NonEmptyStr | None = None
    document_tokens: tuple[NonNegativeInt, ...] = ()
    document_bits: tuple[TotalBits, ...] = ()
    position_ends: tuple[PositiveCount, ...] = ()
    position_tokens: tuple[NonNegativeInt, ...] = ()
    position_bits: tuple[TotalBits, ...] = ()
    position_errors: tuple[NotNegative | None, ...] = ()
    longest_window: PositiveCount | None = None
    min_context: NonNegativeInt | None = None
    mean_context: NotNegative | None = None

    @property
    def outcome(self) -> float:
        """Value that must agree between two evaluations of one checkpoint."""
        return self.loss_bits

    @property
    def perplexity(self) -> float:
        """Perplexity per token."""
        return 2.0**self.loss_bits

    @property
    def bits_per_byte(self) -> float | None:
        """Bits per byte of the text; None if its size is unknown."""
        if self.tokens is None or self.bytes is None:
            return None
        return self.loss_bits * self.tokens / self.bytes

    @property
    def word_perplexity(self) -> float | None:
        """Perplexity per word; None if it exceeds float64, as for a text with few spaces."""
        if self.tokens is None or self.words is None:
            return None
        bits_per_word = self.loss_bits * self.tokens / self.words
        return 2.0**bits_per_word if bits_per_word <= MAX_BITS else None

    @property
    def details(self) -> frozenset[str]:
        """Parts of the text whose losses are known: ``documents``, ``positions``."""
        details = set()
        if self.document_bits:
            details.add("documents")
        if self.position_bits:
            details.add("positions")
        return frozenset(details)


@dataclass(frozen=True)
class ProbeValues:
    """Accuracy on the sequences of a probe.

    Attributes:
        accuracy: fraction of the symbols that the model predicts correctly.
        gap: number of fillers between the symbols and their first occurrence.
        trials: number of sequences.
        chance: accuracy of guessing.
    """

    __pydantic_config__ = STORED

    accuracy: Fraction
    gap: NonNegativeInt
    trials: PositiveCount
    chance: Fraction

    @property
    def documents(self) -> None:
        """A probe has no documents."""

    @property
    def outcome(self) -> float:
        """Value that must agree between two evaluations of one checkpoint."""
        return self.accuracy

    @property
    def details(self) -> frozenset[str]:
        """A probe has no parts."""
        return frozenset()


@dataclass(frozen=True)
class Cost:
    """Time and memory of a measurement, which are never compared.

    Attributes:
        device: ``cpu`` or ``cuda``.
        seconds: duration of the forward passes, or since the start of training, with
            validation and saving.
        gpu_seconds: that duration times the number of GPUs.
        tokens_per_second: for an evaluation, without loading; for a run, over all updates so far
            and all processes, without validation and saving.
        tokens_per_second_batch_1: one window at a time, as in the paper's Tables 2 to 4.
        tokens_per_second_per_process: ``tokens_per_second`` of one process, for runs whose number
            of processes may have changed.
        windows_per_batch: windows that were computed at once.
        peak_memory_mb: in 10⁶ bytes: on a GPU the most that PyTorch allocated, on a CPU the most
            that the process held.
        processes: number of processes.
        trained_tokens: tokens that the run has read, over all processes.
    """

    __pydantic_config__ = STORED

    device: NonEmptyStr | None = None
    seconds: NotNegative | None = None
    gpu_seconds: NotNegative | None = None
    tokens_per_second: Positive | None = None
    tokens_per_second_batch_1: Positive | None = None
    tokens_per_second_per_process: Positive | None = None
    windows_per_batch: PositiveCount | None = None
    peak_memory_mb: NotNegative | None = None
    processes: PositiveCount | None = None
    trained_tokens: NonNegativeInt | None = None


@dataclass(frozen=True)
class TextSummary:
    """What a manifest says about a text. None means unknown.

    Attributes:
        tokenizer: kind of the tokenizer.
        vocabulary: size of the dictionary.
        train_tokens, train_bytes: size of the training split.
    """

    __pydantic_config__ = STORED

    tokenizer: NonEmptyStr | None = None
    vocabulary: NonNegativeInt | None = None
    train_tokens: NonNegativeInt | None = None
    train_bytes: NonNegativeInt | None = None
