"""Decoding with cached keys equals the full forward pass."""

from __future__ import annotations

import pytest
import torch
from conftest import FIRST_WORD, random_tokens, small_model

PAD = 1
METHODS = ["alibi", "sinusoidal", "none"]


def decode(model, tokens, ends):
    """Scores of all positions, computed in chunks that end at the given places."""
    state: dict = {}
    chunks = [model.decoder(tokens[:, :end], incremental_state=state)[0] for end in ends]
    return torch.cat(chunks, dim=1)


@pytest.mark.parametrize("ends", [range(1, 41), [7, 8, 30, 40]], ids=["one by one", "in chunks"])
@pytest.mark.parametrize("method", METHODS)
@torch.no_grad()
def test_cached_decoding_equals_the_full_pass(method, ends):
    model, tokens = small_model(method), random_tokens(3, 40)
    torch.testing.assert_close(decode(model, tokens, ends), model(tokens)[0], rtol=0, atol=1e-5)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("side", ["left", "right"])
@torch.no_grad()
def test_padding_changes_nothing_for_real_tokens(method, side):
    model, lengths = small_model(method), [40, 33, 12, 1]
    rows = [random_tokens(1, length) for length in lengths]
    padded = torch.full((len(rows), 40), PAD)
    spans = []
    for row, tokens in enumerate(rows):
        first = 40 - tokens.shape[1] if side == "left" else 0
        spans.append(slice(first, first + tokens.shape[1]))
        padded[row, spans[-1]] = tokens
    for scores in (model(padded)[0], decode(model, padded, [5, 6, 20, 40])):
        assert scores.isfinite().all()
        for row, tokens in enumerate(rows):
            torch.testing.assert_close(
                scores[row, spans[row]], model(tokens)[0][0], rtol=0, atol=1e-5
            )


@torch.no_grad()
def test_reordering_beams_reorders_the_cache():
    model, tokens = small_model("alibi"), random_tokens(3, 12)
    order = torch.tensor([2, 0, 0])
    state: dict = {}
    model.decoder(tokens[:, :11], incremental_state=state)
    model.decoder.reorder_incremental_state_scripting(state, order)
    mixed = tokens[order].clone()
    mixed[:, 11] = torch.tensor([FIRST_WORD, FIRST_WORD + 1, FIRST_WORD + 2])
    scores = model.decoder(mixed, incremental_state=state)[0]
    torch.testing.assert_close(scores[:, 0], model(mixed)[0][:, 11], rtol=0, atol=1e-5)
