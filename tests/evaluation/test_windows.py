"""Evaluation windows compared with fairseq's windows."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from conftest import small_dictionary
from fairseq.data import (
    LMContextWindowDataset,
    MonolingualDataset,
    TokenBlockDataset,
    data_utils,
)
from hypothesis import given
from hypothesis import strategies as st

from alibi_fairseq.evaluation.windows import (
    measure_context,
    plan_windows,
    share_start,
)


def order_sizes(drawn: tuple[int, int, int]) -> tuple[int, int, int]:
    """Return tokens, length, and stride, where the stride is at most the length."""
    tokens, first, second = drawn
    return tokens, max(first, second), min(first, second)


SIZES = st.tuples(st.integers(1, 200), st.integers(1, 40), st.integers(1, 40)).map(order_sizes)


@given(SIZES)
def test_plan_scores_every_token_once_with_context(sizes):
    tokens, length, stride = sizes
    windows = plan_windows(tokens, length, stride)
    scored = []
    contexts = []
    for window in windows:
        assert 0 <= window.start <= window.first_scored < window.stop
        assert window.length <= length
        assert window.num_scored <= stride
        for position in range(window.first_scored, window.stop):
            context = position - window.start + 1
            assert min(position + 1, length - stride + 1) <= context <= length
            scored.append(position)
            contexts.append(context)
    assert scored == list(range(tokens))
    least, mean = measure_context(windows)
    assert least == min(contexts)
    assert mean == pytest.approx(sum(contexts) / tokens, rel=1e-12)


@given(SIZES)
def test_shared_start_keeps_context_of_every_token(sizes):
    def contexts(windows):
        pairs = []
        for window in windows:
            for position in range(window.first_scored, window.stop):
                pairs.append((position, position - window.start + 1))
        return pairs

    windows = plan_windows(*sizes)
    shared = share_start(windows)
    assert contexts(shared) == contexts(windows)
    _, length, _ = sizes
    assert all(window.length <= length for window in shared)
    assert sum(window.start == 0 for window in shared) == 1


def fairseq_windows(tokens: int, length: int, stride: int) -> list[tuple[list[int], list[int]]]:
    """Return inputs and scored targets of each window from fairseq's data pipeline.

    Every token of the stream is a different word, which identifies its position.
    """
    dictionary = small_dictionary(tokens)
    pad = dictionary.pad()
    eos = dictionary.eos()
    stream = torch.arange(4, 4 + tokens)
    blocks = TokenBlockDataset([stream], [tokens], stride, pad, eos, "none", include_targets=True)
    dataset = MonolingualDataset(blocks, blocks.sizes, dictionary, targets=["future"])
    if length > stride:
        dataset = LMContextWindowDataset(dataset, stride, length - stride, pad)
    with data_utils.numpy_seed(0):
        batches = [dataset.collater([dataset[i]]) for i in range(len(dataset))]
    windows = []
    for batch in batches:
        start = batch.get("start_indices", [0])[0]
        inputs = batch["net_input"]["src_tokens"][0]
        targets = batch["target"][0, start:]
        windows.append((inputs[inputs != pad].tolist(), targets[targets != pad].tolist()))
    return windows


@pytest.mark.parametrize("tokens", [1, 7, 12, 40])
@pytest.mark.parametrize(
    ("length", "stride"),
    [(1, 1), (5, 5), (5, 1), (5, 2), (5, 4), (10, 4), (12, 12), (64, 64), (64, 3)],
)
def test_windows_match_fairseq(tokens, length, stride):
    stream = np.arange(4, 4 + tokens)
    inputs = np.concatenate([[2], stream[:-1]])  # 2 is fairseq's end of sentence
    windows = []
    for window in plan_windows(tokens, length, stride):
        scored = stream[window.first_scored : window.stop].tolist()
        windows.append((inputs[window.start : window.stop].tolist(), scored))
    assert windows == fairseq_windows(tokens, length, stride)
