"""Division of a corpus so that every batch row continues where it stopped. Pure arithmetic.

The corpus of N tokens is split into one contiguous stretch per row of all processes,
of equal length up to one token. Segment s of a row is its tokens s·T … s·T + T − 1. Each token is the
target of exactly one position for any N, number of rows and T.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Stretches:
    """The plan for one corpus.

    Attributes:
        tokens: tokens N of the corpus, at least one per row.
        rows: rows of all processes together.
        length: tokens T per segment.
    """

    tokens: int
    rows: int
    length: int

    @property
    def segments(self) -> int:
        """Segments per row, the same number for all rows, so that processes stay in step."""
        longest = -(-self.tokens // self.rows)
        return -(-longest // self.length)

    def targets(self, row: int, segment: int) -> range:
        """Positions in the corpus that a row predicts in a segment.

        The last segment of a row may be shorter than T, or empty where another row's stretch is
        one token longer.
        """
        stretch = range(self.tokens * row // self.rows, self.tokens * (row + 1) // self.rows)
        return stretch[segment * self.length : (segment + 1) * self.length]
