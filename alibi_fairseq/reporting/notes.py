"""What is noted about perplexities that mean less than they seem to: marks, and a warning."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from ..results.values import TextValues
from .common_conditions import MAX_LISTED
from .row import Point, Row

#: Smallest gain of a trained model over token frequencies, as a fraction of their entropy.
MIN_GAIN = 0.1
CHANCE_NOTE = (
    "chance: the bits per token are at least nine tenths of those of guessing entries of the "
    "dictionary at random. The model is untrained or has diverged."
)


def _past_end_note(points: Iterable[Point]) -> str:
    """Return the note on values at evaluation lengths beyond the end of the text."""
    longest = sorted({point.longest_window or 0 for point in points})
    tokens = " or ".join(f"{length:,}" for length in longest)
    return (
        f"{PAST_END.symbol}: no window is this long, because the text ends before; the longest has "
        f"{tokens} tokens, and its value is repeated."
    )


class Mark(NamedTuple):
    """Mark of some values of a table.

    Attributes:
        symbol: text after a value.
        applies: function that returns whether a point has the mark.
        note: function that returns the note on the points that have it.
    """

    symbol: str
    applies: Callable[[Point], bool]
    note: Callable[[Sequence[Point]], str]


PAST_END = Mark("†", lambda point: point.is_past_end, _past_end_note)
CHANCE = Mark("(chance)", lambda point: point.is_near_chance, lambda points: CHANCE_NOTE)
#: Marks of perplexities, and of bits per byte, which have no chance level.
MARKS = (PAST_END, CHANCE)
MARKS_OF_BYTES = (PAST_END,)


def marked(text: str, point: Point, marks: Iterable[Mark] = MARKS) -> str:
    """Return the text of a value with the marks of its point."""
    for mark in marks:
        if mark.applies(point):
            text += f" {mark.symbol}"
    return text


def mark_notes(points: Iterable[Point], marks: Iterable[Mark] = MARKS) -> list[str]:
    """Return the notes on the marks that points of a table have."""
    points = list(points)
    notes = []
    for mark in marks:
        marked_points = [point for point in points if mark.applies(point)]
        if marked_points:
            notes.append(mark.note(marked_points))
    return notes


def chance_warning(rows: Iterable[Row]) -> str:
    """Return which models are near chance, or "", for figures, which mark no values."""
    near = _distinct(row.label for row in rows if any(point.is_near_chance for point in row.points))
    if not near:
        return ""
    return f"Near chance: {', '.join(near) if len(near) <= MAX_LISTED else f'{len(near)} models'}"


def undertrained_warning(rows: Iterable[Row]) -> str:
    """Return a warning about models whose loss is near the entropy of token frequencies, or "".

    The lowest loss of each seed over all rows counts, also of evaluations with overridden options,
    which share the trained model. The entropy is unknown in results of earlier versions.
    """
    labels: dict[tuple, str] = {}
    lowest: dict[tuple, tuple[float, float]] = {}  # loss and entropy in bits
    for row in rows:
        for result in row.results:
            values = result.values
            if not isinstance(values, TextValues) or values.unigram_bits is None:
                continue
            checkpoint = result.checkpoint_sha256 or result.checkpoint
            seed = (result.series, result.reading.at, result.seed, checkpoint)
            labels.setdefault(seed, row.label)
            bits = (values.loss_bits, values.unigram_bits)
            lowest[seed] = min(bits, lowest.get(seed, bits))
    worse = []
    near = []
    perplexities = []
    for seed, (loss, entropy) in lowest.items():
        if loss <= (1 - MIN_GAIN) * entropy:
            continue
        perplexities.append(f"{2**entropy:,.1f}")
        if loss > entropy:
            worse.append(labels[seed])
        else:
            near.append(labels[seed])
    if not perplexities:
        return ""
    sentences = [
        "Warning: token frequencies alone have a perplexity of "
        f"{' or '.join(_distinct(perplexities))} on this split"
    ]
    if worse:
        sentences.append(f"These models are worse: {'; '.join(_distinct(worse))}")
    near_only = [label for label in _distinct(near) if label not in worse]
    if near_only:
        sentences.append(
            f"The loss of these models is less than {MIN_GAIN:.0%} lower: {'; '.join(near_only)}"
        )
    sentences.append("Do not compare their position methods. Train them longer")
    return ". ".join(sentences)


def _distinct(texts: Iterable[str]) -> list[str]:
    """Return the texts without repetitions, in order."""
    return list(dict.fromkeys(texts))
