"""Windows: the inputs of each forward pass and the tokens that it scores. Pure arithmetic.

A split has N tokens. The input at position p is the token before it, or the end-of-sentence symbol
for p = 0. Token p is predicted from its context: the input at p and the earlier inputs of the
window.

A window of length L has L inputs. With stride S, it scores the tokens at its last S positions. Its
first L − S inputs only give them context.

``fairseq-eval-lm --tokens-per-sample L --context-window L-S`` has the same windows: window k
scores the tokens kS … (k+1)S − 1 and sees at most L − S inputs before them. So the first window
scores S tokens without context, windows grow until they have length L, and the remainder is a
shorter window with the same L − S inputs of context. S = L is non-overlapping.

Windows follow each other along a span of the split, and start again in the next one. Usually, the
only span is the whole split. If a range of each document is scored, each document is a span.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from ..errors import UserInputError


class Window(NamedTuple):
    """One forward pass over inputs ``start … stop - 1`` that scores ``first_scored … stop - 1``.

    Attributes:
        remembered: number of inputs before ``start`` that the model remembers from the window
            before.
    """

    start: int
    first_scored: int
    stop: int
    remembered: int = 0

    @property
    def length(self) -> int:
        """Number of inputs."""
        return self.stop - self.start

    @property
    def num_scored(self) -> int:
        """Number of tokens scored."""
        return self.stop - self.first_scored

    @property
    def first_context(self) -> int:
        """Context of the first scored token, which grows by one from each token to the next."""
        return self.remembered + self.first_scored - self.start + 1


class Span(NamedTuple):
    """Document, or split, that starts at ``begin``, with its scored tokens ``first … stop - 1``."""

    begin: int
    first: int
    stop: int


def select_spans(
    num_tokens: int, starts: Sequence[int], score_from: int | None, score_to: int | None
) -> list[Span]:
    """Return the scored tokens of each document. They do not depend on length and stride.

    If L ≤ ``score_from``, the start of a document shortens the context of no scored token.

    Args:
        num_tokens: length of the split.
        starts: positions where a document starts, increasing from 0.
        score_from: number of tokens at the start of each document that are not scored; None for 0.
        score_to: number of tokens at the start of each document after which none is scored, or None
            to score up to its end.

    Raises:
        UserInputError: no token is scored.
    """
    skipped = score_from or 0
    ends = [*starts[1:], num_tokens]
    spans = []
    for begin, end in zip(starts, ends, strict=True):
        stop = end
        if score_to is not None:
            stop = min(begin + score_to, end)
        first = min(begin + skipped, stop)
        spans.append(Span(begin, first, stop))
    if all(span.first >= span.stop for span in spans):
        raise UserInputError(
            f"--score-from {score_from} and --score-to {score_to} leave no token to score. Lower "
            "--score-from or raise --score-to."
        )
    return spans


def check_window(length: int, stride: int) -> None:
    """Check that 1 ≤ stride ≤ length.

    Raises:
        UserInputError: it is not.
    """
    if not 1 <= stride <= length:
        raise UserInputError(
            f"--strides {stride} does not fit --lengths {length}. A window scores 1 token or more, "
            "and at most as many as it holds."
        )


def plan_windows(
    num_tokens: int,
    length: int,
    stride: int,
    spans: Sequence[Span] | None = None,
    memory_length: int = 0,
) -> list[Window]:
    """Plan windows that score each selected token exactly once.

    Args:
        num_tokens: length of the split.
        length: maximum inputs L of a window.
        stride: maximum tokens S that a window scores, 1 ≤ S ≤ L.
        spans: where windows start again, with the tokens to score; None for the whole split. No
            window has inputs from before the start of its span.
        memory_length: most inputs that the model remembers from the windows before. It must be 0 if
            there are several spans or overlapping windows.
    """
    check_window(length, stride)
    unscored = length - stride
    windows = []
    for begin, first, end in spans or [Span(0, 0, num_tokens)]:
        for first_scored in range(first, end, stride):
            start = max(begin, first_scored - unscored)
            stop = min(first_scored + stride, end)
            windows.append(Window(start, first_scored, stop, min(start, memory_length)))
    return windows


def share_start(windows: list[Window]) -> list[Window]:
    """Merge the windows at the start of each span into one.

    A causal model computes all their scores in one pass. This is wrong for a model whose scores
    depend on the number of inputs of the window.
    """
    merged: list[Window] = []
    for window in windows:
        if merged and merged[-1].start == window.start:
            merged[-1] = merged[-1]._replace(stop=window.stop)
        else:
            merged.append(window)
    return merged


def measure_context(windows: Iterable[Window]) -> tuple[int, float]:
    """Return the minimum and mean context over all scored tokens.

    The context of a token is the number of inputs that its prediction sees, including its own.
    """
    smallest_contexts = []
    total = 0
    num_tokens = 0
    for window in windows:
        smallest = window.first_context
        largest = smallest + window.num_scored - 1
        smallest_contexts.append(smallest)
        total += (smallest + largest) * window.num_scored // 2
        num_tokens += window.num_scored
    return min(smallest_contexts), total / num_tokens


def make_batches(windows: list[Window], size: int) -> list[list[Window]]:
    """Group consecutive windows of the same shape into batches of at most ``size`` windows.

    The shape of a window is its length and its number of scored tokens. Matrix products round
    differently for different batch shapes, so the loss of a window may depend on its batch.
    """
    batches = []
    for _, group in groupby(windows, key=lambda window: (window.length, window.num_scored)):
        same_shape = list(group)
        for begin in range(0, len(same_shape), size):
            batches.append(same_shape[begin : begin + size])
    return batches
