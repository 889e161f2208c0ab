"""Readers of dictionaries and of binary data."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import torch
from conftest import dictionary_of
from fairseq.data import indexed_dataset
from fuzzing.edits import changed
from fuzzing.inputs import PROGRAM, any_file

from alibi_fairseq.checkpoints import released
from alibi_fairseq.evaluation import data as evaluation_data
from alibi_fairseq.results import dictionaries

_DICTIONARY = "the 12\nof 7\né 3\nsame 2 #fairseq:overwrite\nmadeupword0000 0\n".encode()


def dictionary(data: bytes, folder: Path) -> None:
    (folder / "dict.txt").write_bytes(any_file(data, _DICTIONARY))
    released.read_dictionary(folder / "dict.txt")
    evaluation_data.load_dictionary(folder)
    dictionaries.dictionary_sha256(folder)


@cache
def _data_bin() -> tuple[bytes, bytes]:
    """(idx, bin) of four lines."""
    lines = [np.array(line, dtype=np.uint16) for line in ([4, 5, 2], [6, 2], [2], [7, 8, 9, 2])]
    sizes = np.array([len(line) for line in lines], dtype=np.int32)
    pointers = np.concatenate([[0], np.cumsum(sizes[:-1]) * 2]).astype(np.int64)
    head = b"MMIDIDX\0\0" + (1).to_bytes(8, "little") + b"\x08" + (4).to_bytes(8, "little")
    return head + sizes.tobytes() + pointers.tobytes(), b"".join(line.tobytes() for line in lines)


@cache
def _legacy() -> tuple[bytes, bytes]:
    """(idx, bin) in fairseq's older format."""
    folder = Path("/dev/shm" if Path("/dev/shm").is_dir() else "/tmp")
    prefix = str(folder / f"legacy{id(folder)}")
    builder = indexed_dataset.IndexedDatasetBuilder(prefix + ".bin")
    for line in ([4, 5, 2], [6, 2]):
        builder.add_item(torch.IntTensor(line))
    builder.finalize(prefix + ".idx")
    paths = Path(prefix + ".idx"), Path(prefix + ".bin")
    contents = tuple(path.read_bytes() for path in paths)
    for path in paths:
        path.unlink()
    return contents


def data_bin(data: bytes, folder: Path) -> None:
    form = data[0] if data else 0
    idx, tokens = _legacy() if form % 4 == 3 else _data_bin()
    if form >= PROGRAM:
        cut = data[1] if len(data) > 1 else 0
        idx, tokens = data[2 : 2 + cut], data[2 + cut :]
    elif form % 4 == 2:
        tokens = changed(tokens, data[2:])[: data[1] if len(data) > 1 else None]
    elif form % 4 == 1:
        idx = changed(idx, data[2:])[: data[1] if len(data) > 1 else None]
    else:
        idx, tokens = changed(idx, data[1:]), changed(tokens, data[5:])
    (folder / "dict.txt").write_text("".join(f"w{word} 1\n" for word in range(6)))
    (folder / "valid.idx").write_bytes(idx)
    (folder / "valid.bin").write_bytes(tokens)
    split = evaluation_data.load_split(folder, "valid", dictionary_of(6))
    split.inputs(2)


TARGETS: dict[str, Callable[[bytes, Path], None]] = {"dictionary": dictionary, "data-bin": data_bin}
VALID: dict[str, Callable[[], list[bytes]]] = {
    "dictionary": lambda: [_DICTIONARY],
    "data-bin": lambda: [bytes([len(_data_bin()[0])]) + b"".join(_data_bin())],
}
