"""Continuing the training of a model at a longer length or without positions."""

from __future__ import annotations

import pytest
import torch
from commands import SHORT, in_process

from alibi_fairseq.evaluation.checkpoint import load_checkpoint
from alibi_fairseq.positions import METHODS

#: Methods whose parameters do not depend on the training length.
CONTINUED = sorted(set(METHODS) - {"learned"})
CASES = []
for method in CONTINUED:
    marks = () if method == "alibi" else (pytest.mark.slow,)
    CASES.append(pytest.param(method, marks=marks))


def training_flags(method: str, *changes: str) -> list[str]:
    flags = [*SHORT, "--position-method", method, *changes]
    if method == "transformer_xl":
        flags += ["--task", "segment_language_modeling", "--mem-len", "16"]
    return flags


def train_short(method: str, data_bin, folder):
    """Train at length 16, and return the checkpoint."""
    in_process("train", data_bin, *training_flags(method), "--save-dir", folder)
    return folder / "checkpoint_last.pt"


def train_longer(method: str, data_bin, start, folder):
    """Continue training at length 64 for an update that changes almost nothing."""
    changes = ("--tokens-per-sample", "64", "--max-update", "1", "--lr", "1e-9")
    flags = training_flags(method, *changes)
    in_process("train", data_bin, *flags, "--finetune-from-model", start, "--save-dir", folder)
    return folder / "checkpoint_last.pt"


@pytest.mark.parametrize("method", CASES)
def test_training_continues_at_four_times_the_length(method, data_bin, tmp_path):
    short = train_short(method, data_bin, tmp_path / "short")
    longer = train_longer(method, data_bin, short, tmp_path / "long")
    before = load_checkpoint(short, data_bin)
    after = load_checkpoint(longer, data_bin)
    assert before.weights.series.train_length == 16
    assert after.weights.series.train_length == 64
    assert after.weights.updates == 1
    after_parameters = dict(after.decoder.named_parameters())
    for name, parameter in before.decoder.named_parameters():
        torch.testing.assert_close(after_parameters[name], parameter, rtol=0, atol=1e-6, msg=name)


def test_learned_positions_cannot_continue_at_another_length(data_bin, tmp_path):
    short = train_short("learned", data_bin, tmp_path / "short")
    with pytest.raises(Exception, match="Cannot load model parameters"):
        train_longer("learned", data_bin, short, tmp_path / "long")


@pytest.mark.ci
def test_rotary_model_continues_without_positions(data_bin, tmp_path):
    """DroPE: load the weights, and restart the optimizer and the schedule."""
    start = train_short("rotary", data_bin, tmp_path / "rotary")
    flags = training_flags("none", "--max-update", "1", "--lr", "1e-9")
    folder = tmp_path / "none"
    in_process("train", data_bin, *flags, "--finetune-from-model", start, "--save-dir", folder)
    dropped = load_checkpoint(folder / "checkpoint_last.pt", data_bin)
    assert dropped.method.notation == "none"
    assert dropped.weights.updates == 1

    rotary = load_checkpoint(start, data_bin)
    overridden = load_checkpoint(start, data_bin, overrides={"position_method": "none"})
    tokens = torch.arange(4, 20)[None]
    with torch.no_grad():
        scores = dropped.decoder(tokens)[0]
        expected = overridden.decoder(tokens)[0]
        with_positions = rotary.decoder(tokens)[0]
    torch.testing.assert_close(scores, expected, rtol=0, atol=1e-5)
    assert (scores - with_positions).abs().max() > 1e-3
