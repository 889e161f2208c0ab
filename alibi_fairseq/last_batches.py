"""A workaround of :mod:`.compat` for samples that fairseq leaves out."""

from __future__ import annotations

import numpy as np
from fairseq.data import data_utils

from .patching import mentions, wrap


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
