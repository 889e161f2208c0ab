"""Memory layout of masks."""

from __future__ import annotations

import pytest
import torch
from attention_calls import Call


@pytest.mark.parametrize("call", [Call(), Call("t5", cached=40), Call(window=100)], ids=str)
def test_rows_are_contiguous_in_memory(call):
    """PyTorch's fused attention on a GPU rejects masks whose keys are not adjacent."""
    q, k, _, _ = call.tensors()
    visible = call.cached + 200
    with torch.no_grad():
        block = call.mask().block(q[:, :, 100:200], k[:, :, :visible], 100, torch.bfloat16)
    assert block.stride(-1) == 1
