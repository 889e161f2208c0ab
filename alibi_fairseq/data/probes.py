"""Synthetic sequences that repeat strings or pairs of symbols after a gap.

All sequences consist of blocks between fillers. A block starts with a marker, and the last one ends
the sequence::

    filler … MARK block filler … MARK block </s>

- ``copy``: each block is the same random string. The fillers are one symbol.
- ``passkey``: the same with a shorter string, the key, in running text.
- ``mqar``, multi-query associative recall: each block has the same pairs of a key and a value in a
  new order. The fillers are one symbol.
- ``overwrite``: each block first repeats the last value of each key, then gives each a new value.
  The earlier values are wrong answers with the right key. The fillers are one symbol.

Only attention to an earlier occurrence predicts the last block. The symbols of a string differ, so
each determines the next. The values of pairs are independent, so a value does not follow from the
others. Training sequences have several blocks, since a model of three layers learns little from two
occurrences in hundreds of updates.

Source of multi-query associative recall: Arora et al. 2024, "Zoology"
(https://arxiv.org/abs/2312.04927). There, all pairs are at the beginning, and single queries are
distributed over the fillers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..errors import UserInputError
from .tokenization import END_OF_LINE

#: Multiples of the training length at which models are tested.
MULTIPLES = (1, 2, 4, 8, 16)
#: Depths of the first block in test sequences: 0 at the beginning, 1 immediately before the last.
DEPTHS = (0.0, 0.25, 0.5, 0.75, 1.0)
#: Test sequences per length and depth.
SEQUENCES_PER_CASE = 64
#: Dictionary entries of a probe before its symbols.
_MARKER_AND_FILLER = ("<probe:mark>", "<probe:filler>")


@dataclass(frozen=True)
class Probe(ABC):
    """A task: sequences with a block to repeat.

    Attributes:
        name: name on the command line.
        symbols: number of different symbols of a string, or of different values.
        copies: number of blocks of a training sequence, or as many as fit.
        in_text: True: the fillers are running text. False: they are one symbol.
    """

    name: str
    symbols: int
    copies: int
    in_text: bool

    @property
    @abstractmethod
    def chance(self) -> float:
        """Accuracy of guessing."""

    @property
    @abstractmethod
    def num_symbols(self) -> int:
        """Number of dictionary entries for the symbols of blocks."""

    @property
    @abstractmethod
    def block_size(self) -> int:
        """Number of tokens of a block, with its marker."""

    @property
    @abstractmethod
    def answers(self) -> np.ndarray:
        """Positions of the predicted symbols in a block, ascending."""

    @abstractmethod
    def blocks(self, rng: np.random.Generator, count: int, copies: int) -> np.ndarray:
        """Generate the symbols of blocks, without the marker.

        Returns:
            (count, copies, block_size - 1), with symbols from 0.
        """

    @property
    def entries(self) -> list[str]:
        """Dictionary entries of the probe: marker, filler, and symbols."""
        return [*_MARKER_AND_FILLER, *(f"<probe:{n}>" for n in range(self.num_symbols))]

    @property
    def num_entries(self) -> int:
        """Number of dictionary entries."""
        return len(_MARKER_AND_FILLER) + self.num_symbols

    def num_fillers(self, length: int, copies: int = 2) -> int:
        """Return the number of fillers in a sequence of ``length`` tokens."""
        return length - 1 - copies * self.block_size

    def gap(self, length: int, depth: float) -> int:
        """Return the number of fillers between the two blocks of a test sequence."""
        num_fillers = self.num_fillers(length)
        return num_fillers - round(depth * num_fillers)

    def answer_positions(self, length: int) -> np.ndarray:
        """Return the positions of the predicted symbols in a sequence, ascending."""
        return length - 1 - self.block_size + self.answers

    def check(self, length: int) -> None:
        """Raise UserInputError if two blocks and a gap do not fit into a sequence."""
        num_fillers = self.num_fillers(length)
        if num_fillers < 1:
            raise UserInputError(
                f"the probe '{self.name}' needs sequences of at least {length + 1 - num_fillers} "
                f"tokens, not {length}."
            )

    def sequences(
        self,
        rng: np.random.Generator,
        marker: int,
        text: np.ndarray | None,
        count: int,
        length: int,
        depth: float | None = None,
        copies: int = 2,
    ) -> np.ndarray:
        """Generate random sequences.

        Args:
            rng: random generator.
            marker: dictionary index of the marker, which the other entries follow.
            text: (N,) tokens of running text, used from random positions. None: filler symbols.
            count: number of sequences.
            length: tokens of a sequence, including ``</s>``.
            depth: position of the first of two blocks: 0 at the beginning, 1 immediately before
                the last. None: random.
            copies: number of blocks.

        Returns:
            (count, length) int64.

        Raises:
            UserInputError: the sequences are too short for the blocks, or too long for the text.
        """
        self.check(length)
        num_fillers = self.num_fillers(length, copies)
        fillers = self._fillers(rng, marker, text, count, num_fillers)

        blocks = np.full((count, copies, self.block_size), marker)
        blocks[..., 1:] = marker + len(_MARKER_AND_FILLER) + self.blocks(rng, count, copies)
        # Number of fillers before each block; the last block comes after all of them.
        fillers_before = np.sort(rng.integers(0, num_fillers + 1, (count, copies - 1)), axis=1)
        if depth is not None:
            fillers_before[:] = round(depth * num_fillers)
        last = np.full((count, 1), num_fillers)
        fillers_before = np.concatenate([fillers_before, last], axis=1)  # (count, copies)

        starts = fillers_before + self.block_size * np.arange(copies)
        positions = (starts[..., None] + np.arange(self.block_size)).reshape(count, -1)
        rows = np.full((count, length), END_OF_LINE)
        is_filler = np.full((count, length), True)
        is_filler[:, -1] = False  # </s>
        np.put_along_axis(rows, positions, blocks.reshape(count, -1), axis=1)
        np.put_along_axis(is_filler, positions, False, axis=1)
        rows[is_filler] = fillers.ravel()
        return rows

    def _fillers(
        self,
        rng: np.random.Generator,
        marker: int,
        text: np.ndarray | None,
        count: int,
        num_fillers: int,
    ) -> np.ndarray:
        """Return the fillers of sequences, (count, num_fillers), for :meth:`sequences`."""
        if text is None:
            return np.full((count, num_fillers), marker + 1)
        if len(text) < num_fillers:
            raise UserInputError(
                f"the text to fill sequences with has only {len(text):,} tokens, but the longest "
                f"sequences need {num_fillers:,}. Provide a longer text, or reduce the lengths."
            )
        starts = rng.integers(0, len(text) - num_fillers + 1, (count, 1))
        return text[starts + np.arange(num_fillers)]


@dataclass(frozen=True)
class StringProbe(Probe):
    """Blocks of one random string of different symbols.

    Attributes:
        size: number of symbols of a string.
    """

    size: int

    @property
    def chance(self) -> float:
        return 1 / self.symbols

    @property
    def num_symbols(self) -> int:
        return self.symbols

    @property
    def block_size(self) -> int:
        return 1 + self.size

    @property
    def answers(self) -> np.ndarray:
        return np.arange(1, self.block_size)

    def blocks(self, rng: np.random.Generator, count: int, copies: int) -> np.ndarray:
        symbols = np.tile(np.arange(self.symbols), (count, 1))
        strings = rng.permuted(symbols, axis=1)[:, : self.size]
        return np.repeat(strings[:, None], copies, axis=1)


@dataclass(frozen=True)
class RecallProbe(Probe):
    """Blocks of pairs of a key and a value, of which the values are predicted.

    The keys of a sequence differ, and its values are independent. Every block has the pairs in
    another random order, so that the order of an earlier block is no help.

    Attributes:
        keys: number of different keys. Keys are symbols 0 to ``keys - 1``, and values follow.
        pairs: number of pairs of a sequence.
    """

    keys: int
    pairs: int

    @property
    def chance(self) -> float:
        """Accuracy of guessing one of the values of the sequence."""
        others = 1 - 1 / self.pairs
        return 1 / self.pairs + others / self.symbols

    @property
    def num_symbols(self) -> int:
        return self.keys + self.symbols

    @property
    def block_size(self) -> int:
        return 1 + 2 * self.pairs

    @property
    def answers(self) -> np.ndarray:
        return np.arange(2, self.block_size, 2)

    def blocks(self, rng: np.random.Generator, count: int, copies: int) -> np.ndarray:
        all_keys = np.tile(np.arange(self.keys), (count, 1))
        keys = rng.permuted(all_keys, axis=1)[:, : self.pairs]
        values = self.keys + rng.integers(0, self.symbols, (count, self.pairs))
        pairs = np.stack([keys, values], axis=2)
        unordered = np.tile(np.arange(self.pairs), (count, copies, 1))
        order = rng.permuted(unordered, axis=2)
        ordered = np.take_along_axis(pairs[:, None], order[..., None], axis=2)
        return ordered.reshape(count, copies, 2 * self.pairs)


@dataclass(frozen=True)
class OverwriteProbe(RecallProbe):
    """Blocks of two rounds of pairs: the last value of each key, and then a new one.

    The values of the first round are predicted. In the first block, they are given.
    """

    @property
    def block_size(self) -> int:
        return 1 + 4 * self.pairs

    @property
    def answers(self) -> np.ndarray:
        return np.arange(2, 1 + 2 * self.pairs, 2)

    def blocks(self, rng: np.random.Generator, count: int, copies: int) -> np.ndarray:
        all_keys = np.tile(np.arange(self.keys), (count, 1))
        keys = rng.permuted(all_keys, axis=1)[:, : self.pairs]
        values = self.keys + rng.integers(0, self.symbols, (count, copies + 1, self.pairs))
        # Block n has the values n, and then the values n + 1.
        rounds = np.stack([values[:, :-1], values[:, 1:]], axis=2)  # (count, copies, 2, pairs)
        keys_of_rounds = np.broadcast_to(keys[:, None, None], rounds.shape)
        pairs = np.stack([keys_of_rounds, rounds], axis=-1)
        unordered = np.broadcast_to(np.arange(self.pairs), rounds.shape)
        order = rng.permuted(unordered, axis=3)
        ordered = np.take_along_axis(pairs, order[..., None], axis=3)
        return ordered.reshape(count, copies, 4 * self.pairs)


PROBES: dict[str, Probe] = {
    "copy": StringProbe("copy", symbols=32, size=8, copies=5, in_text=False),
    "passkey": StringProbe("passkey", symbols=10, size=5, copies=4, in_text=True),
    "mqar": RecallProbe("mqar", symbols=64, keys=64, pairs=4, copies=5, in_text=False),
    "overwrite": OverwriteProbe("overwrite", symbols=64, keys=64, pairs=3, copies=4, in_text=False),
}
#: Keys of :data:`PROBES`. A type cannot be computed from them.
ProbeName = Literal["copy", "passkey", "mqar", "overwrite"]
