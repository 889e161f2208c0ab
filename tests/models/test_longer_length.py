"""A trained model goes on at a longer length, by every method without parameters by length."""

from __future__ import annotations

import pytest
import torch
from commands import SHORT, in_process

from alibi_fairseq.errors import explain
from alibi_fairseq.evaluation.checkpoint import load_checkpoint
from alibi_fairseq.positions import METHODS

SLOW = set(METHODS) - {"alibi", "learned"}
EVERY = [pytest.param(m, marks=pytest.mark.slow) if m in SLOW else m for m in sorted(METHODS)]


def options(method: str, *changed: str) -> list[str]:
    flags = [*SHORT, "--position-method", method, *changed]
    if method == "transformer_xl":
        flags += ["--task", "segment_language_modeling", "--mem-len", "16"]
    return flags


@pytest.mark.parametrize("method", EVERY)
def test_training_continues_at_four_times_the_length(method, data_bin, tmp_path):
    in_process("train", data_bin, *options(method), "--save-dir", tmp_path / "short")
    start = tmp_path / "short" / "checkpoint_last.pt"
    longer = ("--tokens-per-sample", "64", "--max-update", "1", "--lr", "1e-9")
    more = [*options(method, *longer), "--finetune-from-model", start]
    if method == "learned":
        with pytest.raises(Exception) as refused:
            in_process("train", data_bin, *more, "--save-dir", tmp_path / "long")
        assert "embed_positions" in explain(refused.value)
        return
    in_process("train", data_bin, *more, "--save-dir", tmp_path / "long")
    before, after = (
        load_checkpoint(folder / "checkpoint_last.pt", data_bin)
        for folder in (tmp_path / "short", tmp_path / "long")
    )
    assert (before.facts["train_length"], after.facts["train_length"]) == (16, 64)
    assert after.facts["updates"] == 1
    for (name, one), other in zip(
        before.decoder.named_parameters(), after.decoder.parameters(), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6, msg=name)


def test_rotary_model_continues_without_positions(data_bin, tmp_path):
    """DroPE: the weights are taken as they are, and optimizer and schedule start anew."""
    in_process("train", data_bin, *options("rotary"), "--save-dir", tmp_path / "rotary")
    start = tmp_path / "rotary" / "checkpoint_last.pt"
    more = [*options("none", "--max-update", "1", "--lr", "1e-9"), "--finetune-from-model", start]
    in_process("train", data_bin, *more, "--save-dir", tmp_path / "none")
    dropped = load_checkpoint(tmp_path / "none" / "checkpoint_last.pt", data_bin)
    assert (dropped.facts["position_method"], dropped.facts["updates"]) == ("none", 1)
    overridden = load_checkpoint(start, data_bin, overrides={"position_method": "none"})
    rotary = load_checkpoint(start, data_bin)
    tokens = torch.arange(4, 20)[None]
    with torch.no_grad():
        found, expected, before = (
            model.decoder(tokens)[0] for model in (dropped, overridden, rotary)
        )
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    assert (found - before).abs().max() > 1e-3
