"""A model with a memory reads the split in order and hands its memory on."""

from __future__ import annotations

import pytest

from alibi_fairseq.errors import BadInput

XL = "transformer-xl"


def test_a_memory_of_everything_is_one_long_window(sweep):
    """Then nothing is ever cut off, and segments are only a way to compute the same."""
    everything = {"overrides": {"mem_len": 5000}}
    (segments,) = sweep(XL, "segments", **everything)
    (whole,) = sweep(XL, "whole", lengths=[5000], **everything)
    assert segments["loss_bits"] == pytest.approx(whole["loss_bits"], abs=1e-5)
    assert segments["mean_context"] == whole["mean_context"]


def test_memory_changes_the_loss_and_the_context(sweep):
    (some,) = sweep(XL, "some")
    (none,) = sweep(XL, "none", overrides={"mem_len": 0})
    assert some["memory_length"] == 24 and "memory_length" not in none
    assert some["loss_bits"] != none["loss_bits"]
    # Behind the first segments a token sees 24 remembered inputs and 1 to 16 of its own segment.
    assert 28 < some["mean_context"] < 24 + 8.5
    assert none["mean_context"] == pytest.approx(8.5, abs=0.1)


def test_a_memory_excludes_strides(sweep, tmp_path):
    with pytest.raises(BadInput, match="--stride"):
        sweep(XL, strides=[4])
    assert not list(tmp_path.iterdir())
