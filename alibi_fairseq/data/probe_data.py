"""Data folder of a probe: its binary data, dictionary, and settings."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..completion_marker import read_json_if_present
from ..files import atomic_folder, read_json, sha256_file
from .binarization import write_lines
from .probes import MULTIPLES, PROBES, Probe
from .tokenization import SPECIAL

if TYPE_CHECKING:
    from torch import Tensor

#: File with the settings of a probe, in its data folder.
PROBE_FILE = "probe.json"
#: Split with the running text of test sequences.
TEXT = "text"
#: Tokens of the training split, about twice as many as `compare` reads by default.
TOKENS = 1 << 23
#: Sequences of the validation split.
HELD_OUT = 256
#: Sequences generated in one call.
_BATCH = 10_000


def load_probe_settings(data: Path) -> Probe:
    """Return the probe of a data folder, with the settings that it was prepared with."""
    settings = read_json(data / PROBE_FILE)["probe"]
    return type(PROBES[settings["name"]])(**settings)


def load_probe(data: Path) -> tuple[Probe, int, np.ndarray | None]:
    """Load a prepared probe.

    Args:
        data: data folder.

    Returns:
        The probe, the dictionary index of its marker, and the running text of test sequences, (N,),
        or None.
    """
    probe = load_probe_settings(data)
    num_entries = SPECIAL + (data / "dict.txt").read_bytes().count(b"\n")
    marker = num_entries - probe.num_entries
    text = _load_tokens(data, TEXT) if probe.in_text else None
    return probe, marker, text


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
        settings["held_out_text"] = sha256_file(text / "valid.bin")
    existing = read_json_if_present(out / PROBE_FILE)
    # Older folders do not record the held-out text.
    if existing is not None and {**settings, **existing} == settings:
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
        num_entries = marker + probe.num_entries
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
    return np.concatenate([np.asarray(line, dtype=np.int64) for line in lines])
