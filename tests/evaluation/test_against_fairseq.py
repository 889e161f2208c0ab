"""Losses of trained checkpoints, compared with ``fairseq-eval-lm``."""

from __future__ import annotations

import pytest
from fairseq_runs import run_eval_lm
from trained import TRAIN_LENGTH

#: Needed to evaluate fairseq's own model past its training length.
OVERRIDES = {"max_target_positions": 40}


@pytest.mark.ci
@pytest.mark.parametrize(
    ("name", "method", "length", "stride"),
    [
        ("alibi", "alibi", 7, 7),
        ("alibi", "alibi", 5000, 5000),
        ("alibi", "alibi", 32, 1),
        ("alibi", "alibi", 50, 16),
        ("alibi-adaptive", "alibi", 7, 7),
        ("alibi-adaptive", "alibi", 50, 16),
        ("sinusoidal", "sinusoidal", 5000, 5000),
        ("sinusoidal", "sinusoidal", 50, 16),
        ("stock", "sinusoidal", 40, 8),
        ("transformer-xl", "transformer_xl", 16, 16),
        ("transformer-xl", "transformer_xl", 50, 50),
    ],
)
def test_bits_per_token_match_fairseq(sweep, trained, name, method, length, stride):
    """Run fairseq with one worker and one window at a time."""
    flags = ["--gen-subset", "test", "--max-sentences", "1", "--max-tokens", str(length)]
    flags += ["--tokens-per-sample", str(length), "--context-window", str(length - stride)]
    flags += ["--sample-break-mode", "none"]
    changes = {"splits": ["test"], "lengths": [length], "strides": [stride]}
    if name == "stock":
        changes["overrides"] = OVERRIDES
        flags += ["--model-overrides", str(OVERRIDES)]
    if name == "transformer-xl":
        changes["strides"] = ["full"]
        flags += ["--task", "segment_language_modeling"]
    (record,) = sweep(name, **changes)
    expected = run_eval_lm(trained.data, trained(name), *flags)
    assert record.values.loss_bits == pytest.approx(float(expected["loss"]), abs=1e-4)
    assert record.series.method.names == (method,)
    assert record.series.train_length == TRAIN_LENGTH
