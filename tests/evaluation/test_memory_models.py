"""A model with a memory reads the split in order and hands its memory on."""

from __future__ import annotations

import pytest

from alibi_fairseq.errors import BadInput
from alibi_fairseq.evaluation.sweep import Sweep, run_sweep


@pytest.fixture
def sweep(trained, tmp_path):
    def make(name: str, **changes) -> Sweep:
        settings = {"subsets": ["valid"], "lengths": [16], "strides": [None]}
        checkpoint = trained("transformer-xl")
        return Sweep(trained.data, [checkpoint], out=tmp_path / name, **{**settings, **changes})

    return make


def test_a_memory_of_everything_is_one_long_window(sweep):
    """Then nothing is ever cut off, and segments are only a way to compute the same."""
    everything = {"overrides": {"mem_len": 5000}}
    (segments,) = run_sweep(sweep("segments.json", **everything))
    (whole,) = run_sweep(sweep("whole.json", lengths=[5000], **everything))
    assert segments["loss_bits"] == pytest.approx(whole["loss_bits"], abs=1e-5)
    assert segments["mean_context"] == whole["mean_context"]


def test_memory_changes_the_loss_and_the_context(sweep):
    (some,) = run_sweep(sweep("some.json"))
    (none,) = run_sweep(sweep("none.json", overrides={"mem_len": 0}))
    assert some["memory_length"] == 24 and "memory_length" not in none
    assert some["loss_bits"] != none["loss_bits"]
    # Behind the first segments a token sees 24 remembered inputs and 1 to 16 of its own segment.
    assert 28 < some["mean_context"] < 24 + 8.5
    assert none["mean_context"] == pytest.approx(8.5, abs=0.1)


def test_what_a_memory_excludes(sweep):
    with pytest.raises(BadInput, match="use --stride full"):
        run_sweep(sweep("a.json", strides=[4]))
    with pytest.raises(BadInput, match="remove --shard"):
        run_sweep(sweep("b.json", shard=(1, 2)))
    assert not sweep("a.json").out.exists()
