"""Windows: the tokens that each forward pass sees, and those that it scores. Pure arithmetic.

A split is one stream of N tokens. Token p is predicted from the input at p, which is the token
before it (for p = 0 the end-of-sentence symbol), and from the inputs before that within the window.
A window of length L has L inputs; with stride S it scores the last S tokens and the others are
context.

The windows are those of ``fairseq-eval-lm --tokens-per-sample L --context-window L-S``: window k
scores the tokens kS … (k+1)S − 1 and sees at most L − S inputs before them. So the first window
scores S tokens without context, windows grow until they have length L, and the remainder is a
shorter window with the same L − S inputs of context. S = L is non-overlapping.

If only some tokens of each document are scored (:class:`Span`), each document is a separate stream,
and its windows score these tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from ..errors import UserInputError


class Window(NamedTuple):
    """One forward pass over the inputs ``start … stop - 1`` that scores ``scored … stop - 1``."""

    start: int
    scored: int
    stop: int

    @property
    def length(self) -> int:
        """Number of inputs."""
        return self.stop - self.start

    @property
    def scores(self) -> int:
        """Number of tokens scored."""
        return self.stop - self.scored


class Span(NamedTuple):
    """A document that begins at ``begin``, whose tokens ``first … last - 1`` are scored."""

    begin: int
    first: int
    last: int


def spans_of(
    tokens: int, starts: Sequence[int], score_from: int | None, score_to: int | None
) -> list[Span]:
    """Return the scored tokens of each document, which have ``score_from`` tokens before them.

    They are the same at every length and stride; for L ≤ ``score_from`` no context is missing.

    Args:
        starts: positions where a document begins, increasing from 0.
        score_to: only the first ``score_to`` tokens of each document, or None for all.

    Raises:
        UserInputError: nothing is scored.
    """
    skipped = score_from or 0
    ends = [*starts[1:], tokens]
    spans = []
    for begin, end in zip(starts, ends, strict=True):
        last = end
        if score_to is not None:
            last = min(begin + score_to, end)
        first = min(begin + skipped, last)
        spans.append(Span(begin, first, last))
    if skipped < 0 or all(span.first >= span.last for span in spans):
        raise UserInputError(
            f"--score-from {score_from} and --score-to {score_to} leave no token to score, or more "
            "than there are; change them."
        )
    return spans


def check_window(length: int, stride: int) -> None:
    """Check that 1 ≤ stride ≤ length.

    Raises:
        UserInputError: it is not.
    """
    if not 1 <= stride <= length:
        raise UserInputError(
            f"--strides, the number of tokens that a window scores, must be 1 to the length of "
            f"--lengths, not {stride} of {length}."
        )


def plan_windows(
    tokens: int, length: int, stride: int, spans: Sequence[Span] | None = None
) -> list[Window]:
    """Plan windows that score each selected token exactly once.

    Args:
        tokens: number of tokens of the stream.
        length: maximum inputs L of a window.
        stride: maximum tokens S that a window scores, 1 ≤ S ≤ L.
        spans: documents, beyond whose beginnings no window reaches; None for one of all tokens.
    """
    check_window(length, stride)
    context = length - stride
    windows = []
    for begin, first, last in spans or [Span(0, 0, tokens)]:
        for scored in range(first, last, stride):
            start = max(begin, scored - context)
            stop = min(scored + stride, last)
            windows.append(Window(start, scored, stop))
    return windows


def effective_window(length: int, stride: int, spans: Sequence[Span]) -> tuple[int, int]:
    """Return the largest stride and context that the windows of a plan use.

    Two plans over the same spans are equal if and only if these are. Lengths beyond the end of the
    text have the windows of a shorter length.
    """
    largest_stride = 0
    largest_context = 0
    for begin, first, last in spans:
        scores = last - first
        if scores <= 0:
            continue
        largest_stride = max(largest_stride, scores)
        windows_before = (scores - 1) // stride
        last_window = first + windows_before * stride
        largest_context = max(largest_context, last_window - begin)
    return min(stride, largest_stride), min(length - stride, largest_context)


def share_start(windows: list[Window]) -> list[Window]:
    """Merge all windows at the start of the stream, or of a document, into one.

    A causal model computes the scores of all in one pass over the longest; not a model whose scores
    depend on the length of the pass.
    """
    merged: list[Window] = []
    for window in windows:
        if merged and merged[-1].start == window.start:
            merged[-1] = merged[-1]._replace(stop=window.stop)
        else:
            merged.append(window)
    return merged


def context_of(windows: Iterable[Window]) -> tuple[int, float]:
    """Return the minimum and mean context over all scored tokens.

    The context of a token is the number of inputs that its prediction sees, including its own.
    """
    firsts = []
    total = 0
    tokens = 0
    for window in windows:
        # The context grows by one from each scored token to the next.
        first = window.scored - window.start + 1
        last = window.length
        firsts.append(first)
        total += (first + last) * window.scores // 2
        tokens += window.scores
    return min(firsts), total / tokens


def make_batches(windows: list[Window], size: int) -> list[list[Window]]:
    """Group windows of equal lengths and numbers of scored tokens into batches of up to ``size``.

    Matrix products round differently for different batch shapes, so the loss of a window may depend
    on its batch.
    """
    batches = []
    for _, group in groupby(windows, key=lambda window: (window.length, window.scores)):
        same_shape = list(group)
        for begin in range(0, len(same_shape), size):
            batches.append(same_shape[begin : begin + size])
    return batches
