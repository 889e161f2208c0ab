"""The cache of keys and values is what torch.cat would make, whoever continues from it."""

from __future__ import annotations

import pytest
import torch

from alibi_fairseq.models.self_attention import appended


def random(length: int, batch: int = 2) -> torch.Tensor:
    return torch.randn(batch, 3, length, 4)


def test_key_cache_appends_without_copying():
    parts = [random(length) for length in (7, 5, 1000, *[1] * 66)]
    cached, places = parts[0], set()
    for number, part in enumerate(parts[1:], 2):
        cached = appended(cached, part)
        assert torch.equal(cached, torch.cat(parts[:number], dim=2))
        places.add(cached.data_ptr())
    assert len(places) == 2  # a longer one, and room for half of its length


def test_key_cache_separates_two_continuations():
    begin = appended(random(5), random(1))
    kept, one, two = begin.clone(), random(3), random(2)
    first, second = appended(begin, one), appended(begin, two)
    assert torch.equal(first, torch.cat([kept, one], dim=2))
    assert torch.equal(second, torch.cat([kept, two], dim=2))
    assert torch.equal(begin, kept)
    assert torch.equal(appended(first, two), torch.cat([kept, one, two], dim=2))
    reordered = begin.index_select(0, torch.tensor([1, 1]))
    assert torch.equal(appended(reordered, one), torch.cat([kept[[1, 1]], one], dim=2))
    with torch.inference_mode():
        cached = appended(random(5), random(1))
    assert torch.equal(appended(cached, one), torch.cat([cached, one], dim=2))


@pytest.mark.parametrize("learns", [(True, True), (True, False), (False, True)])
def test_key_cache_passes_gradients(learns):
    parts = [random(length).requires_grad_(needed) for length, needed in zip((5, 1), learns)]
    joined = appended(*parts)
    squares = joined.square().sum()
    appended(joined, random(2))  # must not touch what the backward pass needs
    squares.backward()
    for part, needed in zip(parts, learns):
        assert not needed or torch.equal(part.grad, 2 * part.detach())
