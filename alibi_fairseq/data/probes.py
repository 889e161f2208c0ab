"""Synthetic sequences that repeat a string after a gap.

``copy`` has a random string among fillers. ``passkey`` has a shorter one, the key, in running text.
Each occurrence follows a marker, and the last one is at the end::

    filler … MARK string filler … MARK string </s>

Only attention to an earlier occurrence predicts the later one. The symbols of a string differ, so
each determines the next. Training sequences repeat the string several times, since a model of three
layers learns little from two occurrences in hundreds of updates.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..errors import UserInputError
from ..files import atomic_folder, sha256_file
from ..results.completion import read_stamp
from .binarization import write_lines
from .tokenization import END_OF_LINE, SPECIAL

if TYPE_CHECKING:
    from torch import Tensor

#: File with the settings of a probe, in its data folder.
SETTINGS_FILE = "probe.json"
#: Split with the running text of test sequences.
TEXT = "text"
#: Multiples of the training length at which models are tested.
MULTIPLES = (1, 2, 4, 8, 16)
#: Depths of the string in test sequences: 0 at the beginning, 1 immediately before its repetition.
DEPTHS = (0.0, 0.25, 0.5, 0.75, 1.0)
#: Test sequences per length and depth.
SEQUENCES_PER_CASE = 64
#: Tokens of the training split, about twice as many as `compare` reads by default.
TOKENS = 1 << 23
#: Sequences of the validation split.
HELD_OUT = 256
#: Sequences generated in one call.
_BATCH = 10_000


@dataclass(frozen=True)
class Probe:
    """A task: sequences with a string to repeat.

    Attributes:
        name: name on the command line.
        symbols: number of different symbols in strings.
        size: number of symbols of a string.
        copies: number of occurrences in a training sequence, or as many as fit.
        in_text: True: sequences are filled with running text. False: with one symbol.
    """

    name: str
    symbols: int
    size: int
    copies: int
    in_text: bool

    @property
    def chance(self) -> float:
        """Accuracy of guessing."""
        return 1 / self.symbols

    @property
    def names(self) -> list[str]:
        """Dictionary entries of the probe: marker, filler, and the symbols of strings."""
        return ["<probe:mark>", "<probe:filler>", *(f"<probe:{n}>" for n in range(self.symbols))]

    def room(self, length: int, copies: int = 2) -> int:
        """Return the number of fillers in a sequence of ``length`` tokens."""
        return length - 1 - copies * (self.size + 1)

    def gap(self, length: int, depth: float) -> int:
        """Return the number of fillers between the two strings of a sequence."""
        room = self.room(length)
        return room - round(depth * room)

    def check(self, length: int) -> None:
        """Raise UserInputError if the string and a gap do not fit into a sequence."""
        if self.room(length) < 1:
            raise UserInputError(
                f"the probe '{self.name}' needs sequences of at least "
                f"{length + 1 - self.room(length)} tokens for a string of {self.size}, a gap and "
                f"the string again, not {length}."
            )

    def sequences(
        self,
        chance: np.random.Generator,
        first: int,
        text: np.ndarray | None,
        count: int,
        length: int,
        depth: float | None = None,
        copies: int = 2,
    ) -> np.ndarray:
        """Generate random sequences.

        Args:
            chance: random generator.
            first: dictionary index of the marker, which the other entries follow.
            text: (N,) tokens of running text, used from random positions. None: filler symbols.
            count: number of sequences.
            length: tokens of a sequence, including ``</s>``.
            depth: position of the first string: 0 at the beginning, 1 immediately before its
                repetition. None: random.
            copies: number of occurrences of the string.

        Returns:
            (count, length) int64.

        Raises:
            UserInputError: the sequences are too short for the string, or too long for the text.
        """
        self.check(length)
        block = self.size + 1  # marker and string
        room = self.room(length, copies)
        if text is None:
            filling = np.full((count, room), first + 1)
        else:
            if len(text) < room:
                raise UserInputError(
                    f"the text to fill sequences of {length:,} tokens with has only {len(text):,}; "
                    "give a longer text or shorter lengths."
                )
            starts = chance.integers(0, len(text) - room + 1, (count, 1))
            filling = text[starts + np.arange(room)]
        symbols = np.tile(np.arange(self.symbols), (count, 1))
        strings = first + 2 + chance.permuted(symbols, axis=1)[:, : self.size]
        marked = np.concatenate([np.full((count, 1), first), strings], axis=1)
        # Number of fillers before each occurrence; the last occurrence comes after all of them.
        before = np.sort(chance.integers(0, room + 1, (count, copies - 1)), axis=1)
        if depth is not None:
            before[:] = round(depth * room)
        before = np.concatenate([before, np.full((count, 1), room)], axis=1)  # (count, copies)
        starts = before + block * np.arange(copies)
        positions = (starts[..., None] + np.arange(block)).reshape(count, -1)
        rows = np.full((count, length), END_OF_LINE)
        is_filler = np.arange(length) < np.full((count, 1), length - 1)
        np.put_along_axis(rows, positions, np.tile(marked, copies), axis=1)
        np.put_along_axis(is_filler, positions, False, axis=1)
        rows[is_filler] = filling.ravel()
        return rows


PROBES = {
    "copy": Probe("copy", symbols=32, size=8, copies=5, in_text=False),
    "passkey": Probe("passkey", symbols=10, size=5, copies=4, in_text=True),
}


def load(data: Path) -> tuple[Probe, int, np.ndarray | None]:
    """Load a prepared probe.

    Args:
        data: data folder.

    Returns:
        The probe, the dictionary index of its marker, and the running text of test sequences, (N,),
        or None.

    Raises:
        UserInputError: the folder has no probe.
    """
    settings = read_stamp(data / SETTINGS_FILE)
    if settings is None:
        raise UserInputError(f"'{data}' was not made for a probe: it has no {SETTINGS_FILE}.")
    probe = Probe(**settings["probe"])
    entries = SPECIAL + (data / "dict.txt").read_bytes().count(b"\n")
    first = entries - len(probe.names)
    text = _load_tokens(data, TEXT) if probe.in_text else None
    return probe, first, text


def prepare(probe: Probe, length: int, text: Path | None, out: Path, seed: int = 1) -> None:
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
    if read_stamp(out / SETTINGS_FILE) == settings:
        return
    words = (text / "dict.txt").read_text(encoding="utf-8") if text else ""
    first = SPECIAL + words.count("\n")
    copies = min(probe.copies, (length - 2) // (probe.size + 1))
    rng = np.random.default_rng(seed)

    def generate(count: int, filling: np.ndarray | None) -> Iterator[Tensor]:
        for begin in range(0, count, _BATCH):
            batch = min(_BATCH, count - begin)
            rows = probe.sequences(rng, first, filling, batch, length, copies=copies)
            yield from torch.from_numpy(rows)

    with atomic_folder(out) as folder:
        entries = first + len(probe.names)
        for split, count in (("train", max(1, TOKENS // length)), ("valid", HELD_OUT)):
            filling = _load_tokens(text, split) if text else None
            write_lines(folder / split, generate(count, filling), entries)
        if filling is not None:
            # Raise an error now if the text is too short for the longest test sequences.
            probe.sequences(rng, first, filling, 1, MULTIPLES[-1] * length)
            write_lines(folder / TEXT, [torch.from_numpy(filling)], entries)
        names = "".join(f"{name} 1\n" for name in probe.names)
        (folder / "dict.txt").write_text(words + names, encoding="utf-8")
        (folder / SETTINGS_FILE).write_text(json.dumps(settings, indent=1), encoding="utf-8")


def _load_tokens(data: Path, split: str) -> np.ndarray:
    """Return all tokens of a split, (N,)."""
    from fairseq.data import data_utils

    lines = data_utils.load_indexed_dataset(str(data / split))
    if lines is None:
        raise UserInputError(f"'{data}' has no split '{split}'.")
    return np.concatenate([np.asarray(line, dtype=np.int64) for line in lines])
