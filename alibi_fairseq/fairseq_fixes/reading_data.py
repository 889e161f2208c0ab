"""Workarounds for damaged dictionaries and binary data, and for samples that fairseq leaves out.

fairseq reads both without checking them: struct.error, KeyError, AssertionError, or numbers from
outside of a file. Every command, in training too, reads them through the functions wrapped here.
"""

from __future__ import annotations

import os
from contextlib import suppress

import numpy as np
from fairseq.data import Dictionary, data_utils, indexed_dataset
from fairseq.data.plasma_utils import PlasmaStore, PlasmaView

from ..errors import BadInput
from . import around, mentions, workaround, wrap

#: fairseq's readers that open .bin and .idx files and nothing else.
READERS = ("mmap", "cached")
#: Bytes before the numbers of an index that ``cached`` reads, and lines of one compared at a time.
_HEAD, _CHUNK = 48, 1 << 20


@around(Dictionary, "add_from_file")
def damaged_dictionaries_named(add, self, f):
    """A damaged dictionary raises ValueError, RuntimeError or a bare Exception, without its name."""
    try:
        return add(self, f)
    except OSError:
        raise
    except Exception as error:
        if not isinstance(f, str):  # the name is known outside
            raise
        raise BadInput(
            f"{f} is not a dictionary ({' '.join(str(error).split())[:200]}); each line is a "
            "symbol and a count, as fairseq-preprocess writes them."
        ) from error


@around(indexed_dataset, "make_dataset")
def damaged_data_named(make, path, impl, *arguments, **keywords):
    """fairseq compares no index with the sizes of its files, and reads what lies behind them.

    Its reader of FASTA files puts the path into a shell command and writes beside it, and takes
    over wherever there is no index (no issue is known); only readers of binary data are left.
    """
    advice = "prepare the data again (fairseq-preprocess, or alibi-fairseq prepare)"
    if impl not in READERS:
        raise BadInput(
            f"{path} is not read as '{impl}' data, only as binary data; {advice}, and leave out "
            "--dataset-impl."
        )
    try:
        data = make(path, impl, *arguments, **keywords)
        if data is not None:
            _check_bounds(data, path)
        return data
    except (FileNotFoundError, PermissionError):
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise BadInput(f"{path}.idx or .bin is damaged ({reason}); {advice}.") from error


def _check_bounds(data, path: str) -> None:
    """Raises ValueError if the index of a split leads outside of its numbers."""
    kind = np.dtype(data._index.dtype if hasattr(data, "_index") else data.dtype)
    if kind.kind not in "iu":
        raise ValueError(f"numbers of type {kind}")
    if hasattr(data, "_index"):
        starts, sizes = data._index._pointers, data.sizes
    else:
        written = (data.dim_offsets, data.data_offsets, data.sizes)
        if os.path.getsize(f"{path}.idx") < _HEAD + sum(part.nbytes for part in written):
            raise ValueError("the index is cut off")
        one_each = np.array_equal(data.dim_offsets, np.arange(len(data) + 1))
        in_a_row = np.array_equal(np.diff(data.data_offsets), data.sizes)
        if not (one_each and in_a_row and data.element_size == kind.itemsize):
            raise ValueError("its lines do not follow each other")
        starts, sizes = data.data_offsets[:-1] * kind.itemsize, data.sizes
    end = os.path.getsize(f"{path}.bin")
    for at in range(0, len(data), _CHUNK):
        first, length = starts[at : at + _CHUNK], sizes[at : at + _CHUNK].astype(np.int64)
        last = first + length * kind.itemsize
        if min(first.min(), length.min()) < 0 or max(first.max(), last.max()) > end:
            raise ValueError(f"the index leads outside of its {end:,} bytes")


@workaround
def readers_deleted_in_silence() -> bool:
    """A reader that could not open its files fails again when it is deleted, and Python prints that
    (no issue is known).
    """
    mmap = indexed_dataset.MMapIndexedDataset
    return any([wrap(owner, "__del__", _delete) for owner in (mmap, mmap.Index)])


def _delete(delete, self):
    with suppress(AttributeError):
        delete(self)


@workaround
def no_plasma() -> bool:
    """``--use-plasma-view`` starts a server by a path that a checkpoint may name, with a package that
    is no longer maintained (apache/arrow#33243).
    """
    # Not __init__: PlasmaStore.__del__ fails on an object without a server.
    return any([wrap(owner, "__new__", _refuse_plasma) for owner in (PlasmaStore, PlasmaView)])


def _refuse_plasma(new, *arguments, **keywords):
    raise BadInput("--use-plasma-view is not supported; leave it out.")


@around(data_utils, "batch_by_size", lambda: mentions(data_utils.batch_by_size, "b = b[:-1]"))
def last_batch_kept(batch_by_size, indices, *arguments, **keywords):
    """The last batch is left out unless its size is a multiple of ``--required-batch-size-multiple``,
    which is 8 unless given (facebookresearch/fairseq#5036). A text of fewer than 8 samples has no
    batch at all then: "The dataset is empty".
    """
    indices = indices if isinstance(indices, np.ndarray) else np.array(list(indices))
    if not len(indices):
        return []
    batches = batch_by_size(indices, *arguments, **keywords)
    if keywords.get("fixed_shapes") is not None:
        return batches
    rest = indices[sum(map(len, batches)) :]
    return [*batches, rest] if len(rest) else batches
