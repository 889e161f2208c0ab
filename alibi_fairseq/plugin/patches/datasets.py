"""Workarounds for binary data: unsafe formats, data of more than 2 GiB, and samples left out."""

from __future__ import annotations

import array
import os

import numpy as np
from fairseq.data import data_utils, indexed_dataset
from fairseq.data.indexed_dataset import MMapIndexedDataset, MMapIndexedDatasetBuilder
from fairseq.data.plasma_utils import PlasmaStore, PlasmaView

from ...data.binarization import check_index
from ...errors import UserInputError
from . import patch_method


@patch_method(indexed_dataset, "make_dataset")
def open_complete_data(make, path, impl, *arguments, **keywords):
    """Read binary data only in the default format, and if it is complete.

    fairseq's reader of FASTA files, which it uses wherever there is no index, puts the path into a
    shell command and writes next to the data. A training on an incomplete file ends when it reaches
    the missing part (not reported upstream).
    """
    if impl == "cached" and not os.path.exists(f"{path}.idx"):
        return None  # fairseq checks in this way whether a split exists
    if impl != "mmap":
        raise UserInputError(
            f"Cannot read {path}.idx: it is damaged, or in the unsupported format '{impl}'. "
            "Prepare the data again (fairseq-preprocess, or alibi-fairseq prepare) without "
            "--dataset-impl."
        )
    data = make(path, impl, *arguments, **keywords)
    if data is not None and len(data):
        end = check_index(f"{path}.idx", data._index)
        if end > os.path.getsize(f"{path}.bin"):
            raise UserInputError(
                f"{path}.bin was not copied completely: its index has {end:,} bytes. Copy it again."
            )
    return data


@patch_method(MMapIndexedDatasetBuilder, "__init__")
def keep_sizes_in_array(init, builder, *arguments, **keywords):
    """Keep the size of each item in 4 bytes.

    fairseq keeps a Python object, with which the 74M lines of the Toronto BookCorpus need 3 GB (not
    reported upstream).
    """
    init(builder, *arguments, **keywords)
    builder._sizes = array.array("i")


@patch_method(MMapIndexedDatasetBuilder, "finalize")
def write_positions_of_many_items(finalize, builder, index_file):
    """Write the index of data with any number of items and bytes.

    fairseq sums up the sizes of merged items to their positions. The sizes have 32 bits, and so
    have the sums with NumPy 2, which overflow at 2 GiB (facebookresearch/fairseq#5532). It also
    keeps each sum as a Python object.
    """
    builder._data_file.close()
    bytes_per_token = np.dtype(builder._dtype).itemsize
    with MMapIndexedDataset.Index.writer(index_file, builder._dtype) as index:
        index._get_pointers = lambda sizes: (
            (np.cumsum(sizes, dtype=np.int64) - sizes) * bytes_per_token
        )
        index.write(builder._sizes)


# Not __init__: PlasmaStore.__del__ fails on an object without a server.
@patch_method(PlasmaStore, "__new__")
@patch_method(PlasmaView, "__new__")
def reject_plasma(new, *arguments, **keywords):
    """Reject ``--use-plasma-view``.

    It starts a server by a path that a checkpoint may name, with a package that is no longer
    maintained (apache/arrow#33243).
    """
    raise UserInputError("--use-plasma-view is not supported. Remove it.")


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
