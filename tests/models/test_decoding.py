"""Decoding with cached keys equals the full forward pass."""

from __future__ import annotations

import pytest
import torch
from conftest import FIRST_WORD, random_tokens, small_model

from alibi_fairseq.positions import METHODS

PAD = 1
LONGEST = 40
EVERY_METHOD = sorted(METHODS)


def method_model(method):
    """Everything except a learned table is used past its training length."""
    model = small_model(method, tokens_per_sample=LONGEST if method == "learned" else 16)
    for parameter in model.decoder.embed_positions.parameters():
        if method in ("t5", "transformer_xl"):  # biases that start near zero would hide mistakes
            parameter.data.mul_(10)
        elif method in ("fox", "cope", "bam"):
            parameter.data.normal_(std=0.5)
    return model


def decode(model, tokens, ends):
    """Scores of all positions, computed in chunks that end at the given places."""
    state: dict = {}
    chunks = [model.decoder(tokens[:, :end], incremental_state=state)[0] for end in ends]
    return torch.cat(chunks, dim=1)


@pytest.mark.parametrize("ends", [range(1, 41), [7, 8, 30, 40]], ids=["one by one", "in chunks"])
@pytest.mark.parametrize("method", EVERY_METHOD)
@torch.no_grad()
def test_cached_decoding_equals_the_full_pass(method, ends):
    model, tokens = method_model(method), random_tokens(3, LONGEST)
    torch.testing.assert_close(decode(model, tokens, ends), model(tokens)[0], rtol=0, atol=1e-5)


@pytest.mark.parametrize("method", EVERY_METHOD)
@pytest.mark.parametrize("side", ["left", "right"])
@torch.no_grad()
def test_padding_changes_nothing_for_real_tokens(method, side):
    model, lengths = method_model(method), [LONGEST, 33, 12, 1]
    rows = [random_tokens(1, length) for length in lengths]
    padded = torch.full((len(rows), LONGEST), PAD)
    spans = []
    for row, tokens in enumerate(rows):
        first = LONGEST - tokens.shape[1] if side == "left" else 0
        spans.append(slice(first, first + tokens.shape[1]))
        padded[row, spans[-1]] = tokens
    for scores in (model(padded)[0], decode(model, padded, [5, 6, 20, 40])):
        assert scores.isfinite().all()
        for row, tokens in enumerate(rows):
            torch.testing.assert_close(
                scores[row, spans[row]], model(tokens)[0][0], rtol=0, atol=1e-5
            )


@pytest.mark.parametrize("method", EVERY_METHOD)
@torch.no_grad()
def test_reordering_beams_reorders_the_cache(method):
    model, tokens = method_model(method), random_tokens(3, 12)
    order = torch.tensor([2, 0, 0])
    state: dict = {}
    model.decoder(tokens[:, :11], incremental_state=state)
    model.decoder.reorder_incremental_state_scripting(state, order)
    mixed = tokens[order].clone()
    mixed[:, 11] = torch.tensor([FIRST_WORD, FIRST_WORD + 1, FIRST_WORD + 2])
    scores = model.decoder(mixed, incremental_state=state)[0]
    torch.testing.assert_close(scores[:, 0], model(mixed)[0][:, 11], rtol=0, atol=1e-5)
