"""Features of the last positions alone equal the last of all features."""

from __future__ import annotations

import pytest
import torch
from conftest import random_tokens, small_model

from alibi_fairseq.positions import METHODS


@pytest.mark.parametrize("last", [1, 3, 19, 20])
@pytest.mark.parametrize("method", METHODS)
def test_last_features(method, last):
    model = small_model(method)
    tokens = random_tokens(3, 20)
    tokens[1, :6] = 1  # padding on the left
    with torch.no_grad():
        everything, _ = model.decoder.extract_features(tokens)
        some, _ = model.decoder.extract_features(tokens, last=last)
    torch.testing.assert_close(some, everything[:, -last:], rtol=1e-5, atol=1e-5)


def test_other_positions_never_reach_the_last_feed_forward():
    decoder = small_model("alibi").decoder
    seen = []
    decoder.layers[-1].fc1.register_forward_hook(lambda _, args, out: seen.append(args[0].shape))
    with torch.no_grad():
        decoder.extract_features(random_tokens(2, 20), last=3)
    assert seen == [(3, 2, 64)]


@pytest.mark.parametrize("last", [1, 4])
@torch.no_grad()
def test_a_memory_comes_before_the_earlier_positions(last):
    """With a rotation or bias by distance, the order of remembered and earlier states matters."""
    model = small_model("transformer_xl", "--mem-len", "10", sequential=True)
    for parameter in model.decoder.embed_positions.parameters():
        parameter.data.mul_(20)  # so that a wrong distance is visible
    _, extra = model.decoder(random_tokens(2, 7))
    tokens, memory = random_tokens(2, 12), extra["memory"]
    everything, _ = model.decoder.extract_features(tokens, memory=memory)
    some, _ = model.decoder.extract_features(tokens, memory=memory, last=last)
    torch.testing.assert_close(some, everything[:, -last:], rtol=1e-5, atol=1e-5)
