"""Scores of single targets against fairseq's full distributions."""

from __future__ import annotations

import pytest
import torch
from conftest import random_tokens, small_model
from fairseq.modules import AdaptiveInput, AdaptiveSoftmax

from alibi_fairseq.evaluation import measure as scoring

METHODS = ["alibi", "sinusoidal", "none"]


def adaptive_softmax(tied: bool, vocabulary: int = 50) -> AdaptiveSoftmax:
    cutoff, width = [10, 25], 16
    words = AdaptiveInput(vocabulary, 1, width, 2.0, width, cutoff) if tied else None
    softmax = AdaptiveSoftmax(
        vocabulary, width, cutoff, 0.2, factor=2.0, adaptive_inputs=words, tie_proj=tied
    )
    for parameter in softmax.parameters():
        torch.nn.init.normal_(parameter)
    return softmax.eval()


@pytest.mark.parametrize("chunk", [1, 60, 2**25])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("words", [(0, 50), (0, 10), (25, 50), (10, 11)])
def test_adaptive_softmax_as_fairseq(monkeypatch, chunk, tied, words):
    monkeypatch.setitem(scoring.CHUNK, "cpu", chunk)
    softmax = adaptive_softmax(tied)
    features, targets = torch.randn(1, 40, 16), torch.randint(*words, (1, 40))
    with torch.no_grad():
        everything = softmax.get_log_prob(features, None)
        ours = scoring.adaptive_losses(softmax, features[0], targets[0])
    expected = -everything.gather(2, targets.unsqueeze(-1))[0, :, 0]
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("chunk", [1, 300, 2**25])
@pytest.mark.parametrize(
    "flags",
    [
        [],
        ["--no-share-decoder-input-output-embed"],
        ["--adaptive-softmax-cutoff", "10,30", "--no-share-decoder-input-output-embed"],
    ],
)
def test_losses_of_a_model_as_fairseq(monkeypatch, chunk, flags):
    monkeypatch.setitem(scoring.CHUNK, "cpu", chunk)
    model = small_model("alibi", *flags)
    tokens, targets = random_tokens(3, 12), random_tokens(3, 12)
    with torch.no_grad():
        scores = model.get_normalized_probs(model(tokens), log_probs=True)
        features, _ = model.decoder.extract_features(tokens, last=5)
        ours = scoring.token_losses(model.decoder, features, targets[:, -5:])
    expected = -scores.gather(2, targets.unsqueeze(-1))[:, -5:, 0]
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-5)


def test_half_scores_are_summed_in_fp32():
    model = small_model("alibi").to(torch.bfloat16)
    tokens = random_tokens(2, 8)
    with torch.no_grad():
        features, _ = model.decoder.extract_features(tokens)
        losses = scoring.token_losses(model.decoder, features, tokens)
        scores = model.decoder.output_layer(features).double().log_softmax(2)
    assert losses.dtype == torch.float32
    expected = -scores.gather(2, tokens.unsqueeze(-1))[:, :, 0].float()
    torch.testing.assert_close(losses, expected, rtol=1e-5, atol=1e-5)
