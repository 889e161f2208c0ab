"""Workarounds for corrupted dictionaries and binary data, and for samples that fairseq leaves out.

fairseq reads both without validation, which gives struct.error, KeyError, AssertionError, or
numbers from outside of a file. Every command, in training too, reads them through the functions
wrapped here.
"""

from __future__ import annotations

import os
from contextlib import suppress

import numpy as np
from fairseq.data import Dictionary, data_utils, indexed_dataset
from fairseq.data.plasma_utils import PlasmaStore, PlasmaView

from ..errors import UserInputError
from . import patch_method

#: Lines of an index compared at a time.
_CHUNK = 1 << 20


@patch_method(Dictionary, "add_from_file")
def name_corrupted_dictionary(add, self, f):
    """Name the file of a corrupted dictionary in the error.

    fairseq raises ValueError, RuntimeError or a bare Exception without it (no issue is known).
    """
    try:
        return add(self, f)
    except OSError:
        raise
    except Exception as error:
        if not isinstance(f, str):  # the name is known outside
            raise
        raise UserInputError(
            f"{f} is not a dictionary ({' '.join(str(error).split())[:200]}); each line is a "
            "symbol and a count, as fairseq-preprocess writes them."
        ) from error


@patch_method(indexed_dataset, "make_dataset")
def open_validated_data(make, path, impl, *arguments, **keywords):
    """Compare the index of a split with the size of its data, and read only the default format.

    fairseq reads beyond the end of the data where the index says so. Its reader of FASTA files,
    which it uses wherever there is no index, puts the path into a shell command and writes next to
    the data (no issue is known).
    """
    advice = "prepare the data again (fairseq-preprocess, or alibi-fairseq prepare)"
    if impl == "cached" and not os.path.exists(f"{path}.idx"):
        return None  # fairseq checks in this way whether a split exists
    if impl != "mmap":
        raise UserInputError(
            f"{path}.idx is damaged, or of the format '{impl}', which is not read; {advice}, and "
            "leave out --dataset-impl."
        )
    try:
        data = make(path, impl, *arguments, **keywords)
        if data is not None:
            _check_bounds(data._index, os.path.getsize(f"{path}.bin"))
        return data
    except (FileNotFoundError, PermissionError):
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise UserInputError(f"{path}.idx or .bin is damaged ({reason}); {advice}.") from error


def _check_bounds(index, end: int) -> None:
    """Raise ValueError if the index of a split leads outside of its data, ``end`` bytes."""
    kind = np.dtype(index.dtype)
    if kind.kind not in "iu":
        raise ValueError(f"numbers of type {kind}")
    for at in range(0, len(index), _CHUNK):
        first = index._pointers[at : at + _CHUNK]
        length = index._sizes[at : at + _CHUNK].astype(np.int64)
        last = first + length * kind.itemsize
        if min(first.min(), length.min()) < 0 or max(first.max(), last.max()) > end:
            raise ValueError(f"the index leads outside of its {end:,} bytes")


@patch_method(indexed_dataset.MMapIndexedDataset.Index, "__del__")
@patch_method(indexed_dataset.MMapIndexedDataset, "__del__")
def delete_reader_silently(delete, self):
    """Delete a reader that could not open its files.

    It fails again when it is deleted, and Python prints the error (no issue is known).
    """
    with suppress(AttributeError):
        delete(self)


# Not __init__: PlasmaStore.__del__ fails on an object without a server.
@patch_method(PlasmaStore, "__new__")
@patch_method(PlasmaView, "__new__")
def reject_plasma(new, *arguments, **keywords):
    """Reject ``--use-plasma-view``.

    It starts a server by a path that a checkpoint may name, with a package that is no longer
    maintained (apache/arrow#33243).
    """
    raise UserInputError("--use-plasma-view is not supported; leave it out.")


@patch_method(data_utils, "batch_by_size")
def keep_last_batch(batch_by_size, indices, *arguments, **keywords):
    """Keep the samples after the last full batch.

    fairseq 0.12.3 leaves out the last batch unless its size is a multiple of
    ``--required-batch-size-multiple``, by default 8 (facebookresearch/fairseq#5036). A text of
    fewer than 8 samples then has no batch at all: "The dataset is empty".
    """
    indices = indices if isinstance(indices, np.ndarray) else np.array(list(indices))
    if not len(indices):
        return []
    batches = batch_by_size(indices, *arguments, **keywords)
    if keywords.get("fixed_shapes") is not None:
        return batches
    rest = indices[sum(map(len, batches)) :]
    return [*batches, rest] if len(rest) else batches
