"""fairseq leaves out the last batch unless told otherwise; with this package it does not."""

from __future__ import annotations

import numpy as np
import pytest
from commands import SHORT, in_process
from fairseq.data import data_utils

BATCHES_OF_8 = {"max_sentences": 8, "num_tokens_fn": lambda index: index + 1}


@pytest.mark.parametrize(
    ("samples", "sizes"), [(0, []), (3, [3]), (8, [8]), (9, [8, 1]), (20, [8, 8, 4])]
)
def test_every_sample_is_kept_in_order(samples, sizes):
    given = np.random.default_rng(0).permutation(samples)
    batches = data_utils.batch_by_size(given, required_batch_size_multiple=8, **BATCHES_OF_8)
    assert [len(batch) for batch in batches] == sizes
    assert np.array_equal(np.concatenate([given[:0], *batches]), given)


def test_short_text_trains(data_bin, tmp_path):
    """All of it is one batch of 23 samples, and in fairseq none."""
    flags = ("--tokens-per-sample", 64, "--max-tokens", 4096, "--save-dir", tmp_path)
    in_process("train", data_bin, *SHORT, *flags)
    assert (tmp_path / "checkpoint_last.pt").is_file()
