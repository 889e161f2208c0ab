"""Losses of targets compared with fairseq's full distributions, and the memory of scoring."""

from __future__ import annotations

import mmap

import pytest
import torch
from conftest import build_model, random_tokens, small_model

from alibi_fairseq.evaluation.checkpoint import token_losses
from alibi_fairseq.models.decoder import AlibiDecoder
from alibi_fairseq.peak_memory import PeakMemory

CUTOFFS = ["--adaptive-softmax-cutoff", "10,30", "--no-share-decoder-input-output-embed"]
TIED = ["--adaptive-input", "--adaptive-input-cutoff", "10,30", "--tie-adaptive-weights"]


@pytest.mark.parametrize(
    "flags",
    [[], None, CUTOFFS[2:], CUTOFFS, [*CUTOFFS, *TIED], [*CUTOFFS, *TIED, "--tie-adaptive-proj"]],
)
@torch.no_grad()
def test_token_losses_match_fairseq(monkeypatch, flags):
    model = small_model("alibi", *(flags or []))
    if flags is None:  # a plugin's decoder with a different output layer
        output_layer = AlibiDecoder.output_layer
        monkeypatch.setattr(AlibiDecoder, "output_layer", lambda *x: 2 * output_layer(*x))
    tokens = random_tokens(3, 12)
    targets = random_tokens(3, 12)
    scores = model.get_normalized_probs(model(tokens), log_probs=True)
    features, _ = model.decoder.extract_features(tokens, last=5)
    ours = token_losses(model.decoder, features, targets[:, -5:])
    expected = -scores.gather(2, targets.unsqueeze(-1))[:, -5:, 0]
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_token_losses_include_the_bias_of_a_plugin():
    decoder = small_model("alibi").decoder
    words, width = decoder.output_projection.weight.shape
    decoder.output_projection = torch.nn.Linear(width, words)
    torch.nn.init.normal_(decoder.output_projection.bias)
    tokens = random_tokens(2, 8)
    features, _ = decoder.extract_features(tokens)
    losses = token_losses(decoder, features, tokens)
    scores = decoder.output_layer(features).log_softmax(2)
    expected = -scores.gather(2, tokens.unsqueeze(-1))[:, :, 0]
    torch.testing.assert_close(losses, expected, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_half_scores_are_summed_in_fp32():
    model = small_model("alibi").to(torch.bfloat16)
    tokens = random_tokens(2, 8)
    features, _ = model.decoder.extract_features(tokens)
    losses = token_losses(model.decoder, features, tokens)
    scores = model.decoder.output_layer(features).double().log_softmax(2)
    assert losses.dtype == torch.float32
    expected = -scores.gather(2, tokens.unsqueeze(-1))[:, :, 0].float()
    torch.testing.assert_close(losses, expected, rtol=1e-5, atol=1e-5)


CPU = torch.device("cpu")
SHAPE = ["--arch", "alibi_lm", "--decoder-layers", "2", "--decoder-ffn-embed-dim", "64"]
SHAPE += ["--decoder-embed-dim", "64"]
ADAPTIVE = [*TIED, "--adaptive-input-cutoff", "20000,60000", "--tie-adaptive-proj"]
ADAPTIVE += ["--adaptive-softmax-cutoff", "20000,60000", "--no-share-decoder-input-output-embed"]


def test_peak_memory_includes_released_memory():
    peak = PeakMemory(CPU)
    before = peak.mb()
    # New pages, because malloc may reuse memory that earlier tests have touched and freed.
    with mmap.mmap(-1, 200_000_000) as pages:
        torch.frombuffer(pages, dtype=torch.uint8).fill_(1)
    assert 150 < peak.mb() - before < 260
    assert PeakMemory(CPU).mb() < before + 100


@pytest.mark.parametrize(
    ("length", "scored", "words", "flags", "most_mb"),
    [
        (2048, 2048, 80_000, [], 480),  # all logits would take 655 MB
        (4096, 1, 60, [], 250),  # all attention scores would take 1,074 MB
        # The paper's output layer and a long window.
        pytest.param(16_384, 16_384, 267_740, ADAPTIVE, 1000, marks=pytest.mark.slow),
    ],
)
@torch.no_grad()
def test_scoring_allocates_no_full_matrix(length, scored, words, flags, most_mb):
    decoder = build_model(*SHAPE, *flags, words=words).eval().decoder
    tokens = random_tokens(1, length, words)
    peak = PeakMemory(CPU)
    before = peak.mb()
    features, _ = decoder.extract_features(tokens, last=scored)
    losses = token_losses(decoder, features, tokens[:, -scored:])
    assert losses.isfinite().all()
    assert peak.mb() - before < most_mb
