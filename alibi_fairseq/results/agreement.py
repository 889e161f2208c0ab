"""Agreement of the numbers of a result record, within the rounding of their printed digits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from itertools import pairwise
from typing import Any

# Fraction of a number by which computations in float64 may differ.
_FLOAT_ERROR = 1e-9


def check_loss(record: Any) -> None:
    """Check that all measures of a loss agree.

    Args:
        record: :class:`.schema.ResultRecord` with a loss.

    Raises:
        ValueError: one of them differs from ``loss_bits``.
    """
    loss = _interval(record.loss_bits)
    perplexity = record.perplexity
    if perplexity is not None and not _overlap(loss, _log2_interval(perplexity)):
        raise ValueError(
            f"perplexity must be 2^loss_bits, not {perplexity!r} with a loss of "
            f"{record.loss_bits!r}; the loss must be in bits"
        )
    if record.tokens is None:
        return
    if record.word_perplexity is not None and record.words is not None:
        per_word = _scaled(loss, record.tokens / record.words)
        if not _overlap(per_word, _log2_interval(record.word_perplexity)):
            raise ValueError(
                "word_perplexity must be 2^(loss_bits × tokens / words), not "
                f"{record.word_perplexity!r}"
            )
    if record.bits_per_byte is not None and record.bytes is not None:
        per_byte = _scaled(loss, record.tokens / record.bytes)
        if not _overlap(per_byte, _interval(record.bits_per_byte)):
            raise ValueError(
                f"bits_per_byte must be loss_bits × tokens / bytes, not {record.bits_per_byte!r}"
            )


def check_increasing(ends: Sequence[int], tokens: Sequence[int]) -> None:
    """Check that the buckets of the loss by position are in order.

    Args:
        ends: last position of each bucket.
        tokens: number of tokens of each bucket.

    Raises:
        ValueError: the positions do not increase, or the lists have different lengths.
    """
    if len(ends) != len(tokens):
        raise ValueError("position_ends and position_tokens must have the same length")
    if any(end >= following for end, following in pairwise(ends)):
        raise ValueError("position_ends must increase")


def check_sums(record: Any, kind: str, tokens: Sequence[int], bits: Sequence[float]) -> None:
    """Check that the tokens and losses of all documents, or of all positions, add up to the whole.

    Args:
        record: :class:`.schema.ResultRecord`.
        kind: ``document`` or ``position``.
        tokens: number of tokens of each part.
        bits: loss of each part in bits.

    Raises:
        ValueError: they do not add up, or the lists have different lengths.
    """
    if len(tokens) != len(bits):
        raise ValueError(f"{kind}_tokens and {kind}_bits must have the same length")
    if record.tokens is not None and sum(tokens) != record.tokens:
        raise ValueError(f"{kind}_tokens must add up to tokens, not to {sum(tokens)}")
    if record.tokens is None or record.loss_bits is None or not bits:
        return
    # All numbers of a list are rounded to the same decimal, but JSON drops zeros at the end. The
    # number with the most decimals shows the rounding.
    rounding = len(bits) * min(_rounding(value) for value in bits)
    total = math.fsum(bits)
    whole = _scaled(_interval(record.loss_bits), record.tokens)
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
    """Multiply an interval by a positive factor."""
    low, high = interval
    return low * factor, high * factor


def _overlap(one: tuple[float, float], other: tuple[float, float]) -> bool:
    """Return True if two intervals share a number, up to the error of float64."""
    slack = _FLOAT_ERROR * max(1.0, abs(one[1]), abs(other[1]))
    return one[0] <= other[1] + slack and other[0] <= one[1] + slack
