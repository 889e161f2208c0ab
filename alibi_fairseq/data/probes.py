"""Synthetic sequences that repeat strings or pairs of symbols after a gap.

All sequences consist of blocks between fillers. A block begins with a marker, and the last one ends
the sequence::

    filler … MARK block filler … MARK block </s>

- ``copy``: each block is the same random string. The fillers are one symbol.
- ``passkey``: the same with a shorter string, the key, in running text.
- ``mqar``, multi-query associative recall: each block has the same pairs of a key and a value in a
  new order. The fillers are one symbol.

Only attention to an earlier occurrence predicts the last block. The symbols of a string differ, so
each determines the next. The values of pairs are independent, so a value does not follow from the
others. Training sequences have several blocks, since a model of three layers learns little from two
occurrences in hundreds of updates.

Source of multi-query associative recall: Arora et al. 2024, "Zoology"
(https://arxiv.org/abs/2312.04927). There, all pairs are at the beginning, and single queries are
distributed over the fillers.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import UserInputError
from ..files import atomic_folder, read_json, sha256_file
from ..results.completion import read_json_if_present
from .binarization import write_lines
from .tokenization import END_OF_LINE, SPECIAL

if TYPE_CHECKING:
    from torch import Tensor

#: File with the settings of a probe, in its data folder.
PROBE_FILE = "probe.json"
#: Split with the running text of test sequences.
TEXT = "text"
#: Multiples of the training length at which models are tested.
MULTIPLES = (1, 2, 4, 8, 16)
#: Depths of the first block in test sequences: 0 at the beginning, 1 immediately before the last.
DEPTHS = (0.0, 0.25, 0.5, 0.75, 1.0)
#: Test sequences per length and depth.
SEQUENCES_PER_CASE = 64
#: Tokens of the training split, about twice as many as `compare` reads by default.
TOKENS = 1 << 23
#: Sequences of the validation split.
HELD_OUT = 256
#: Sequences generated in one call.
_BATCH = 10_000
#: Dictionary entries of a probe in front of its symbols.
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

    def __post_init__(self):
        if self.size > self.symbols:
            raise ValueError("a string needs as many symbols")

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

    def __post_init__(self):
        if self.pairs > self.keys:
            raise ValueError("the pairs need as many keys")

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


PROBES: dict[str, Probe] = {
    "copy": StringProbe("copy", symbols=32, size=8, copies=5, in_text=False),
    "passkey": StringProbe("passkey", symbols=10, size=5, copies=4, in_text=True),
    "mqar": RecallProbe("mqar", symbols=64, keys=64, pairs=4, copies=5, in_text=False),
}


def load(data: Path) -> tuple[Probe, int, np.ndarray | None]:
    """Load a prepared probe, with the settings that it was prepared with.

    Args:
        data: data folder.

    Returns:
        The probe, the dictionary index of its marker, and the running text of test sequences, (N,),
        or None.

    Raises:
        UserInputError: the folder has no probe, an unknown or damaged one, or the dictionary of
            another.
    """
    path = data / PROBE_FILE
    if not path.is_file():
        raise UserInputError(f"'{data}' was not made for a probe: it has no {PROBE_FILE}.")
    probe = _read_probe(path)
    num_entries = SPECIAL + (data / "dict.txt").read_bytes().count(b"\n")
    marker = num_entries - len(_MARKER_AND_FILLER) - probe.num_symbols
    if marker < SPECIAL:
        raise UserInputError(
            f"{path} has more symbols than the dictionary. Prepare the data again with "
            "`alibi-fairseq compare --probes`."
        )
    text = _load_tokens(data, TEXT) if probe.in_text else None
    return probe, marker, text


def _read_probe(path: Path) -> Probe:
    """Read the settings of a probe.

    Raises:
        UserInputError: the file is damaged, or there is no such probe.
    """
    content = read_json(path)
    settings: Any = content.get("probe") if isinstance(content, dict) else None
    name: Any = settings.get("name") if isinstance(settings, dict) else None
    if isinstance(name, str) and name not in PROBES:
        raise UserInputError(
            f"'{path.parent}' was made for the probe '{name}', which does not exist. Choose one "
            f"of: {', '.join(PROBES)}."
        )
    try:
        _check_types(settings, asdict(PROBES[name]))
        return type(PROBES[name])(**settings)
    except (LookupError, TypeError, ValueError) as error:
        raise UserInputError(
            f"{path} does not hold the settings of a probe. Prepare the data again with "
            "`alibi-fairseq compare --probes`."
        ) from error


def _check_types(settings: dict, expected: dict) -> None:
    """Check that settings have the keys and types of others, and that numbers are positive.

    Raises:
        ValueError: a setting is missing, unknown, or of another type.
    """
    if settings.keys() != expected.keys():
        raise ValueError("other keys")
    for key, value in settings.items():
        if type(value) is not type(expected[key]):
            raise ValueError(f"{key} has another type")
        if not isinstance(value, str | bool) and value < 1:
            raise ValueError(f"{key} is not positive")


def prepare_probe(probe: Probe, length: int, text: Path | None, out: Path, seed: int = 1) -> None:
    """Write fairseq's binary data of a probe, unless it already exists.

    The sequences are the blocks of ``--sample-break-mode none``.

    Args:
        probe: the task.
        length: tokens of a sequence.
        text: data folder of the running text, for a probe in text. Training uses its ``train``
            split; validation and test use its ``valid`` split.
        out: the folder to write.
        seed: random seed.
    """
    import torch

    probe.check(length)
    settings = {"probe": asdict(probe), "length": length, "seed": seed}
    if text:
        settings["text"] = sha256_file(text / "train.bin")
    if read_json_if_present(out / PROBE_FILE) == settings:
        return
    text_dictionary = (text / "dict.txt").read_text(encoding="utf-8") if text else ""
    marker = SPECIAL + text_dictionary.count("\n")
    copies = min(probe.copies, (length - 2) // probe.block_size)  # room for a filler and </s>
    rng = np.random.default_rng(seed)

    def generate(count: int, running_text: np.ndarray | None) -> Iterator[Tensor]:
        for begin in range(0, count, _BATCH):
            batch = min(_BATCH, count - begin)
            rows = probe.sequences(rng, marker, running_text, batch, length, copies=copies)
            yield from torch.from_numpy(rows)

    with atomic_folder(out) as folder:
        num_entries = marker + len(probe.entries)
        num_train = max(1, TOKENS // length)
        train = generate(num_train, _load_tokens(text, "train") if text else None)
        write_lines(folder / "train", train, num_entries)
        held_out_text = _load_tokens(text, "valid") if text else None
        write_lines(folder / "valid", generate(HELD_OUT, held_out_text), num_entries)
        if held_out_text is not None:
            # Raise an error now if the text is too short for the longest test sequences.
            probe.sequences(rng, marker, held_out_text, 1, MULTIPLES[-1] * length)
            write_lines(folder / TEXT, [torch.from_numpy(held_out_text)], num_entries)
        symbols = "".join(f"{entry} 1\n" for entry in probe.entries)
        (folder / "dict.txt").write_text(text_dictionary + symbols, encoding="utf-8")
        (folder / PROBE_FILE).write_text(json.dumps(settings, indent=1), encoding="utf-8")


def _load_tokens(data: Path, split: str) -> np.ndarray:
    """Return all tokens of a split, (N,)."""
    from fairseq.data import data_utils

    lines = data_utils.load_indexed_dataset(str(data / split))
    if lines is None:
        raise UserInputError(f"'{data}' has no split '{split}'.")
    return np.concatenate([np.asarray(line, dtype=np.int64) for line in lines])
