"""Losses of trained checkpoints, compared with ``fairseq-eval-lm``."""

from __future__ import annotations

import pytest
from fairseq_runs import run_eval_lm
from trained import TRAIN_LENGTH

OVERRIDES = {"max_target_positions": 40}  # without which fairseq's own model ends at its length


@pytest.mark.parametrize(
    ("name", "method", "length", "stride"),
    [
        *(("alibi", "alibi", *window) for window in ((7, 7), (5000, 5000), (32, 1), (50, 16))),
        *(("alibi-adaptive", "alibi", *window) for window in ((7, 7), (50, 16))),
        *(("sinusoidal", "sinusoidal", *window) for window in ((5000, 5000), (50, 16))),
        ("stock", "sinusoidal", 40, 8),
        *(("transformer-xl", "transformer_xl", *window) for window in ((16, 16), (50, 50))),
    ],
)
def test_bits_per_token_match_fairseq(sweep, trained, name, method, length, stride):
    """fairseq's with one worker and one window at a time."""
    flags = ["--gen-subset", "test", "--max-sentences", "1", "--max-tokens", str(length)]
    flags += ["--tokens-per-sample", str(length), "--context-window", str(length - stride)]
    flags += ["--sample-break-mode", "none"]
    changes = {"subsets": ["test"], "lengths": [length]}
    if name == "stock":
        changes["overrides"] = OVERRIDES
        flags += ["--model-overrides", str(OVERRIDES)]
    if name == "transformer-xl":
        changes["strides"] = [None]
        flags += ["--task", "segment_language_modeling"]
    (cell,) = sweep(name, **{"strides": [stride], **changes})
    expected = run_eval_lm(trained.data, trained(name), *flags)
    assert cell["loss_bits"] == pytest.approx(float(expected["loss"]), abs=1e-4)
    assert (cell["position_method"], cell["train_length"]) == (method, TRAIN_LENGTH)
