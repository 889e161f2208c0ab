"""What docs/footguns.md says of fairseq is so."""

from __future__ import annotations

import numpy as np
import pytest
from fairseq.data.data_utils import batch_by_size


@pytest.mark.parametrize(("multiple", "sizes"), [(8, [8, 8]), (1, [8, 8, 4])])
def test_the_last_batch_is_left_out_unless_told_otherwise(multiple, sizes):
    batches = batch_by_size(
        np.arange(20),
        num_tokens_fn=lambda index: index + 1,
        max_sentences=8,
        required_batch_size_multiple=multiple,
    )
    assert [len(batch) for batch in batches] == sizes
