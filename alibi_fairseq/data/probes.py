"""Synthetic sequences that repeat a string after a gap.

``copy``: a random string in a row of fillers. ``passkey``: a shorter one, the key, in running text. Each
occurrence follows a marker, the last one stands at the end::

    filler … MARK string filler … MARK string </s>

Nothing but attention to an earlier occurrence predicts the later one. The symbols of a string differ, so
that each follows from the one before it. Sequences to train on repeat the string several times: of two
occurrences a model of three layers has learned nothing after 300 updates of 4,096 tokens, of five it
repeats 98 % after 400.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from ..errors import UserInputError
from ..files import atomic_folder, sha256_file
from ..results.completion import read_stamp
from .tokenization import END_OF_LINE, SPECIAL
from .truncation import write_lines

#: What a data folder of a probe was made from.
SETTINGS_FILE = "probe.json"
#: The split with the text that test sequences are filled with.
TEXT = "text"
#: Multiples of the training length that models are tested at.
MULTIPLES = (1, 2, 4, 8, 16)
#: Where strings of test sequences stand: 0 at the beginning, 1 right before their repetition.
DEPTHS = (0.0, 0.25, 0.5, 0.75, 1.0)
#: Test sequences per length and depth.
SEQUENCES_PER_CASE = 64
#: Tokens of the training split: about twice what the default of `compare` reads.
TOKENS = 1 << 23
#: Sequences of the validation split.
HELD_OUT = 256
_CHUNK = 10_000  # sequences made at a time


@dataclass(frozen=True)
class Probe:
    """A task.

    Attributes:
        symbols: number of different symbols in strings.
        size: symbols of a string.
        copies: occurrences in a sequence to train on, or as many as fit.
        in_text: filled with running text, otherwise with one symbol.
    """

    name: str
    symbols: int
    size: int
    copies: int
    in_text: bool

    @property
    def chance(self) -> float:
        """The accuracy of guessing."""
        return 1 / self.symbols

    @property
    def names(self) -> list[str]:
        """Its entries of the dictionary: marker and filler, then the symbols of strings."""
        return ["<probe:mark>", "<probe:filler>", *(f"<probe:{n}>" for n in range(self.symbols))]

    def room(self, length: int, copies: int = 2) -> int:
        """Fillers in a sequence of ``length`` tokens."""
        return length - 1 - copies * (self.size + 1)

    def gap(self, length: int, depth: float) -> int:
        """Fillers between the two strings of a sequence."""
        return self.room(length) - round(depth * self.room(length))

    def check(self, length: int) -> None:
        """Raises UserInputError if the string does not fit twice into a sequence with a gap."""
        if self.room(length) < 1:
            raise UserInputError(
                f"the probe '{self.name}' needs sequences of at least {length + 1 - self.room(length)} "
                f"tokens for a string of {self.size}, a gap and the string again, not {length}."
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
        """Random sequences.

        Args:
            first: number of the marker in the dictionary, which the other entries follow.
            text: (N,) tokens to fill with, from random places; None: filler symbols.
            length: tokens of each, ``</s>`` included.
            depth: where the string stands first: 0 at the beginning, 1 right before its repetition;
                None: anywhere.

        Returns:
            (count, length) int64.
        """
        self.check(length)
        body = self.size + 1  # with the marker
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
        before = np.sort(chance.integers(0, room + 1, (count, copies - 1)), axis=1)  # fillers
        if depth is not None:
            before[:] = round(depth * room)
        ends = np.full((count, 1), room)
        starts = np.concatenate([before, ends], axis=1) + body * np.arange(copies)
        places = (starts[..., None] + np.arange(body)).reshape(count, -1)
        rows = np.full((count, length), END_OF_LINE)
        is_filler = np.arange(length) < np.full((count, 1), length - 1)
        np.put_along_axis(rows, places, np.tile(marked, copies), axis=1)
        np.put_along_axis(is_filler, places, False, axis=1)
        rows[is_filler] = filling.ravel()
        return rows


PROBES = {
    "copy": Probe("copy", symbols=32, size=8, copies=5, in_text=False),
    "passkey": Probe("passkey", symbols=10, size=5, copies=4, in_text=True),
}


def load(data: Path) -> tuple[Probe, int, np.ndarray | None]:
    """A prepared probe: the task, the number of its marker, and the text of test sequences.

    Raises:
        UserInputError: the folder holds none.
    """
    settings = read_stamp(data / SETTINGS_FILE)
    if settings is None:
        raise UserInputError(f"'{data}' was not made for a probe: it has no {SETTINGS_FILE}.")
    probe = Probe(**settings["probe"])
    entries = SPECIAL + (data / "dict.txt").read_bytes().count(b"\n")
    return probe, entries - len(probe.names), _stream(data, TEXT) if probe.in_text else None


def prepare(probe: Probe, length: int, text: Path | None, out: Path, seed: int = 1) -> None:
    """Make fairseq's binary data: sequences that are the blocks of ``--sample-break-mode none``.

    Args:
        text: binary data to fill sequences with, if the probe is one in text: its ``train`` and, for
            validation and test, ``valid`` splits.
        out: the folder to write; what is there already is kept.
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
    chance = np.random.default_rng(seed)
    with atomic_folder(out) as folder:
        entries = first + len(probe.names)
        for split, count in (("train", max(1, TOKENS // length)), ("valid", HELD_OUT)):
            filling = _stream(text, split) if text else None
            chunks = [min(_CHUNK, count - begin) for begin in range(0, count, _CHUNK)]
            parts = (
                probe.sequences(chance, first, filling, chunk, length, copies=copies)
                for chunk in chunks
            )
            rows = (torch.from_numpy(row) for part in parts for row in part)
            write_lines(folder / split, rows, entries)
        if filling is not None:
            probe.sequences(chance, first, filling, 1, MULTIPLES[-1] * length)  # is it long enough?
            write_lines(folder / TEXT, [torch.from_numpy(filling)], entries)
        names = "".join(f"{name} 1\n" for name in probe.names)
        (folder / "dict.txt").write_text(words + names, encoding="utf-8")
        (folder / SETTINGS_FILE).write_text(json.dumps(settings, indent=1), encoding="utf-8")


def _stream(data: Path, split: str) -> np.ndarray:
    """All tokens of a split."""
    from fairseq.data import data_utils

    lines = data_utils.load_indexed_dataset(str(data / split))
    if lines is None:
        raise UserInputError(f"'{data}' has no split '{split}'.")
    return np.concatenate([np.asarray(line, dtype=np.int64) for line in lines])
