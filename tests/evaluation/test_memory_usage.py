"""Memory of a forward pass: no (tokens × vocabulary) and no (length × length) matrix."""

from __future__ import annotations

import mmap

import pytest
import torch
from conftest import build_model, random_tokens

from alibi_fairseq.evaluation.measure import token_losses
from alibi_fairseq.evaluation.memory_usage import PeakMemory

CPU = torch.device("cpu")
SHAPE = ["--arch", "alibi_lm", "--decoder-layers", "2", "--decoder-ffn-embed-dim", "64"]
SHAPE += ["--decoder-embed-dim", "64"]
ADAPTIVE = ["--adaptive-input", "--adaptive-input-cutoff", "20000,60000", "--tie-adaptive-weights"]
ADAPTIVE += ["--adaptive-softmax-cutoff", "20000,60000", "--tie-adaptive-proj"]
ADAPTIVE += ["--no-share-decoder-input-output-embed"]


def growth_mb(decoder, tokens, targets) -> float:
    """Memory that scoring takes beyond what the process holds already, in MB."""
    peak = PeakMemory(CPU)
    before = peak.mb()
    with torch.no_grad():
        features, _ = decoder.extract_features(tokens, last=targets.shape[1])
        losses = token_losses(decoder, features, targets)
    assert losses.isfinite().all()
    return peak.mb() - before


def test_counter_sees_what_was_held_and_let_go():
    peak = PeakMemory(CPU)
    before = peak.mb()
    # Pages of their own: malloc may hold as many that earlier tests have touched and freed.
    with mmap.mmap(-1, 200_000_000) as pages:
        torch.frombuffer(pages, dtype=torch.uint8).fill_(1)
    assert 150 < peak.mb() - before < 260
    assert PeakMemory(CPU).mb() < before + 100


def test_output_in_chunks():
    words, length = 80_000, 2048
    decoder = build_model(*SHAPE, words=words).eval().decoder
    tokens = random_tokens(1, length, words)
    assert growth_mb(decoder, tokens, tokens) < 480 < length * words * 4 / 1e6


def test_attention_in_blocks():
    length = 4096
    decoder = build_model(*SHAPE).eval().decoder
    tokens = random_tokens(1, length)
    assert growth_mb(decoder, tokens, tokens[:, -1:]) < 250 < 8 * length**2 * 4 / 1e6


@pytest.mark.slow
def test_a_long_window_under_the_paper_s_output_layer():
    words, length = 267_740, 16_384
    decoder = build_model(*SHAPE, *ADAPTIVE, words=words).eval().decoder
    tokens = random_tokens(1, length, words)
    assert growth_mb(decoder, tokens, tokens) < 1000
