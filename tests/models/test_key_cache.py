"""The cache of keys and values, compared with ``torch.cat``."""

from __future__ import annotations

import pytest
import torch

from alibi_fairseq.models.self_attention import appended


def random_keys(length: int, batch: int = 2) -> torch.Tensor:
    return torch.randn(batch, 3, length, 4)


def concatenated(*parts: torch.Tensor) -> torch.Tensor:
    return torch.cat(parts, dim=2)


def test_key_cache_appends_without_copying():
    """Only the first append and the append of 1,000 keys copy. Others use spare memory."""
    cached = random_keys(7)
    expected = cached
    addresses = set()
    for length in (5, 1000, *[1] * 66):
        new = random_keys(length)
        cached = appended(cached, new)
        expected = concatenated(expected, new)
        assert torch.equal(cached, expected)
        addresses.add(cached.data_ptr())
    assert len(addresses) == 2


@pytest.fixture
def cached():
    """Return keys with spare memory, which the first append allocates."""
    return appended(random_keys(5), random_keys(1))


def test_key_cache_separates_two_continuations(cached):
    copy = cached.clone()
    first_keys = random_keys(3)
    second_keys = random_keys(2)
    first = appended(cached, first_keys)
    second = appended(cached, second_keys)
    assert torch.equal(first, concatenated(copy, first_keys))
    assert torch.equal(second, concatenated(copy, second_keys))
    assert torch.equal(cached, copy)
    longer = appended(first, second_keys)
    assert torch.equal(longer, concatenated(copy, first_keys, second_keys))


def test_key_cache_continues_reordered_rows(cached):
    # Beam search selects rows. The continuation of another row must not appear in them.
    copy = cached.clone()
    appended(cached, random_keys(3))
    reordered = cached.index_select(0, torch.tensor([1, 1]))
    new = random_keys(3)
    assert torch.equal(appended(reordered, new), concatenated(copy[[1, 1]], new))


def test_key_cache_continues_inference_tensors():
    with torch.inference_mode():
        cached = appended(random_keys(5), random_keys(1))
    new = random_keys(3)
    assert torch.equal(appended(cached, new), concatenated(cached, new))


@pytest.mark.parametrize("needs_grad", [(True, True), (True, False), (False, True)])
def test_key_cache_passes_gradients(needs_grad):
    cached = random_keys(5).requires_grad_(needs_grad[0])
    new = random_keys(1).requires_grad_(needs_grad[1])
    joined = appended(cached, new)
    sum_of_squares = joined.square().sum()
    appended(joined, random_keys(2))  # must not change values that the backward pass needs
    sum_of_squares.backward()
    for keys in (cached, new):
        if keys.requires_grad:
            assert torch.equal(keys.grad, 2 * keys.detach())
