"""Invalid calls of the torch API, which raise one clear error on every backend."""

from __future__ import annotations

import pytest
import torch

from alibi_fairseq.attention import BACKENDS, FutureMask, attend
from alibi_fairseq.positions import PositionConfig, build_position_method

METHOD = build_position_method("fox", PositionConfig(32, 4, num_layers=1, train_length=16))


def attend_to(mask: FutureMask, queries: int = 5, keys: int = 9, **options):
    q = torch.randn(2, 4, queries, 8)
    k, v = torch.randn(2, 2, 4, keys, 8)
    return attend(q, k, v, mask, **options)


@pytest.mark.parametrize("backend", ["auto", *BACKENDS])
@pytest.mark.parametrize("need_weights", [False, True])
def test_missing_gates_raise(backend, need_weights):
    """Without the check, gates would be ignored, and the output would have no positions."""
    mask = FutureMask(METHOD.bias(0, keys=9), 5, 9)
    with pytest.raises(ValueError, match="acts through gates"):
        attend_to(mask, backend=backend, need_weights=need_weights)


@pytest.mark.parametrize("need_weights", [False, True])
def test_unknown_backend_raises(need_weights):
    with pytest.raises(ValueError, match="no attention backend 'fast'.*eager"):
        attend_to(FutureMask(None, 5, 9), backend="fast", need_weights=need_weights)


@pytest.mark.parametrize("backend", ["auto", *BACKENDS])
@pytest.mark.parametrize("lengths", [(5, 10), (4, 9), (9, 9)], ids=str)
def test_mask_of_mismatched_lengths_raises(backend, lengths):
    with pytest.raises(ValueError, match="The mask is for .* queries"):
        attend_to(FutureMask(None, *lengths), backend=backend)
