"""The cache of keys and values, compared with ``torch.cat``."""

from __future__ import annotations

import pytest
import torch

from alibi_fairseq.models.self_attention import appended


def random(length: int, batch: int = 2) -> torch.Tensor:
    return torch.randn(batch, 3, length, 4)


def concatenated(*parts: torch.Tensor) -> torch.Tensor:
    return torch.cat(parts, dim=2)


def test_key_cache_appends_without_copying():
    """The first append and that of 1,000 keys copy. Later ones use spare memory."""
    cached = random(7)
    expected = cached
    addresses = set()
    for length in (5, 1000, *[1] * 66):
        part = random(length)
        cached = appended(cached, part)
        expected = concatenated(expected, part)
        assert torch.equal(cached, expected)
        addresses.add(cached.data_ptr())
    assert len(addresses) == 2


@pytest.fixture
def begin():
    return appended(random(5), random(1))


def test_key_cache_separates_two_continuations(begin):
    copy = begin.clone()
    one = random(3)
    two = random(2)
    first = appended(begin, one)
    second = appended(begin, two)
    assert torch.equal(first, concatenated(copy, one))
    assert torch.equal(second, concatenated(copy, two))
    assert torch.equal(begin, copy)
    assert torch.equal(appended(first, two), concatenated(copy, one, two))


def test_key_cache_continues_reordered_rows(begin):
    # Beam search selects rows. The continuation of another row must not appear in them.
    copy = begin.clone()
    appended(begin, random(3))
    reordered = begin.index_select(0, torch.tensor([1, 1]))
    part = random(3)
    assert torch.equal(appended(reordered, part), concatenated(copy[[1, 1]], part))


def test_key_cache_continues_inference_tensors():
    with torch.inference_mode():
        cached = appended(random(5), random(1))
    part = random(3)
    assert torch.equal(appended(cached, part), concatenated(cached, part))


@pytest.mark.parametrize("needs_grad", [(True, True), (True, False), (False, True)])
def test_key_cache_passes_gradients(needs_grad):
    first = random(5).requires_grad_(needs_grad[0])
    second = random(1).requires_grad_(needs_grad[1])
    joined = appended(first, second)
    squares = joined.square().sum()
    appended(joined, random(2))  # must not change values that the backward pass needs
    squares.backward()
    for part in (first, second):
        if part.requires_grad:
            assert torch.equal(part.grad, 2 * part.detach())
