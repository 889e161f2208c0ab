"""Workarounds for damaged dictionaries and binary data, and for samples that fairseq leaves out.

fairseq reads both without checking them: struct.error, KeyError, AssertionError, or numbers from
outside of a file. Every command, in training too, reads them through the functions wrapped here.
"""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
from fairseq.data import Dictionary, data_utils, indexed_dataset
from fairseq.data.plasma_utils import PlasmaStore, PlasmaView

from ..errors import BadInput
from .patching import mentions, wrap

_ADVICE = "prepare the data again (fairseq-preprocess, or alibi-fairseq prepare)"
_MMAP = indexed_dataset.MMapIndexedDataset.Index._HDR_MAGIC
_LEGACY = indexed_dataset.IndexedDataset._HDR_MAGIC
#: fairseq's readers that open .bin and .idx files and nothing else.
READERS = ("mmap", "cached")
#: Lines of an index that are looked at together.
_CHUNK = 1 << 20


def damaged_dictionaries_named() -> bool:
    """A damaged dictionary raises ValueError, RuntimeError or a bare Exception, without its name."""

    def wrapper(add, self, f):
        if not isinstance(f, str):
            return add(self, f)
        try:
            return add(self, f)
        except (FileNotFoundError, PermissionError, IsADirectoryError):
            raise
        except Exception as error:
            raise BadInput(
                f"{f} is not a dictionary ({' '.join(str(error).split())[:200]}); each line is a "
                "symbol and a count, as fairseq-preprocess writes them."
            ) from error

    return wrap(Dictionary, "add_from_file", wrapper)


def damaged_data_named() -> bool:
    """Before a split is opened, its index is compared with the sizes of its files.

    fairseq's reader of FASTA files puts the path into a shell command and writes beside it, and takes
    over wherever there is no index (no issue is known); only readers of binary data are left.
    """

    def wrapper(make, path, impl, *arguments, **keywords):
        if impl not in READERS:
            raise BadInput(
                f"{path} is not read as '{impl}' data, only as binary data; {_ADVICE}, and leave "
                "out --dataset-impl."
            )
        check_split(path)
        try:
            return make(path, impl, *arguments, **keywords)
        except (FileNotFoundError, PermissionError):
            raise
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise BadInput(f"{path}.bin and .idx cannot be read ({reason}); {_ADVICE}.") from error

    return wrap(indexed_dataset, "make_dataset", wrapper)


def no_plasma() -> bool:
    """``--use-plasma-view`` starts a server by a path that a checkpoint may name, with a package that
    is no longer maintained (apache/arrow#33243).
    """

    def wrapper(new, *arguments, **keywords):
        raise BadInput("--use-plasma-view is not supported; leave it out.")

    # Not __init__: PlasmaStore.__del__ fails on an object without a server.
    wraps = [wrap(owner, "__new__", wrapper, staticmethod) for owner in (PlasmaStore, PlasmaView)]
    return any(wraps)


def check_split(prefix: str) -> None:
    """Compare the index of a split with the sizes of its files.

    Args:
        prefix: path of ``.bin`` and ``.idx`` without the ending. Nothing is checked where these do not exist, or are in a
            format that fairseq writes for other data.

    Raises:
        BadInput: the index is cut off, or leads outside of the data.
    """
    index, data = Path(f"{prefix}.idx"), Path(f"{prefix}.bin")
    if not index.is_file() or not data.is_file():
        return
    try:
        with index.open("rb") as stream:
            begin = stream.read(len(_MMAP))
        if begin == _MMAP:
            _check_mmap(index, data)
        elif begin.startswith(_LEGACY):
            _check_legacy(index, data)
    except (ValueError, struct.error, KeyError) as error:
        raise BadInput(f"{index} is damaged ({error}); {_ADVICE}.") from error


def _check_mmap(index: Path, data: Path) -> None:
    head = struct.Struct("<9sQBQ")
    with index.open("rb") as stream:
        _, version, code, lines = head.unpack(stream.read(head.size))
    kind = np.dtype(indexed_dataset._code_to_dtype[code])
    if version != 1 or kind.kind not in "iu":
        raise ValueError(f"version {version}, numbers of type {kind}")
    if lines * 12 > index.stat().st_size - head.size:
        raise ValueError(f"it is too short for {lines:,} lines")
    if not lines:
        return
    sizes = np.memmap(index, np.int32, "r", head.size, (lines,))
    starts = np.memmap(index, np.int64, "r", head.size + 4 * lines, (lines,))
    end, begin = 0, 0
    for at in range(0, lines, _CHUNK):
        own, first = sizes[at : at + _CHUNK].astype(np.int64), starts[at : at + _CHUNK]
        begin = min(begin, int(own.min()), int(first.min()))
        end = max(end, int(first.max()), int((first + own * kind.itemsize).max()))
    _check_bounds(begin, end, data)


def _check_legacy(index: Path, data: Path) -> None:
    head = struct.Struct("<8sQQQQQ")
    content = index.read_bytes()
    _, version, code, width, lines, count = head.unpack(content[: head.size])
    kind = np.dtype(indexed_dataset._code_to_dtype[code])
    if version != 1 or kind.kind not in "iu" or width != kind.itemsize:
        raise ValueError(f"version {version}, numbers of type {kind}")
    if 8 * (2 * (lines + 1) + count) > len(content) - head.size:
        raise ValueError(f"it is too short for {lines:,} lines")
    numbers = np.frombuffer(content, np.int64, 2 * (lines + 1) + count, head.size)
    dimensions, offsets, sizes = np.split(numbers, [lines + 1, 2 * (lines + 1)])
    one_each = count == lines and np.array_equal(dimensions, np.arange(lines + 1))
    if not one_each or not np.array_equal(np.diff(offsets), sizes) or offsets[0]:
        raise ValueError("its lines do not follow each other")
    _check_bounds(int(numbers.min()), int(offsets[-1]) * width, data)


def _check_bounds(begin: int, end: int, data: Path) -> None:
    size = data.stat().st_size
    if begin < 0 or end > size:
        where = "a negative position" if begin < 0 else f"byte {end:,}"
        raise ValueError(f"it leads to {where} of {data.name}, which has {size:,} bytes")


def last_batch_kept() -> bool:
    """The last batch is left out unless its size is a multiple of ``--required-batch-size-multiple``,
    which is 8 unless given (facebookresearch/fairseq#5036). A text of fewer than 8 samples has no
    batch at all then: "The dataset is empty".
    """
    if not mentions(data_utils.batch_by_size, "b = b[:-1]"):
        return False

    def wrapper(batch_by_size, indices, *arguments, **keywords):
        indices = indices if isinstance(indices, np.ndarray) else np.array(list(indices))
        if not len(indices):
            return []
        batches = batch_by_size(indices, *arguments, **keywords)
        if keywords.get("fixed_shapes") is not None:
            return batches
        rest = indices[sum(map(len, batches)) :]
        return [*batches, rest] if len(rest) else batches

    return wrap(data_utils, "batch_by_size", wrapper)
