"""Workarounds for binary data: formats that could run code, and samples that fairseq leaves out."""

from __future__ import annotations

import os

import numpy as np
from fairseq.data import data_utils, indexed_dataset
from fairseq.data.plasma_utils import PlasmaStore, PlasmaView

from ..errors import UserInputError
from . import patch_method


@patch_method(indexed_dataset, "make_dataset")
def read_only_default_format(make, path, impl, *arguments, **keywords):
    """Read binary data only in the default format.

    fairseq's reader of FASTA files, which it uses wherever there is no index, puts the path into a
    shell command and writes next to the data (no issue is known).
    """
    if impl == "cached" and not os.path.exists(f"{path}.idx"):
        return None  # fairseq checks in this way whether a split exists
    if impl != "mmap":
        raise UserInputError(
            f"{path}.idx is damaged, or of the format '{impl}', which is not read; prepare the "
            "data again (fairseq-preprocess, or alibi-fairseq prepare), and leave out "
            "--dataset-impl."
        )
    return make(path, impl, *arguments, **keywords)


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
