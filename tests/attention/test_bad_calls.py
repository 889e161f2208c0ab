"""Invalid calls of the torch API, which raise one clear error on every backend."""

from __future__ import annotations

import pytest
import torch

from alibi_fairseq.attention import BACKENDS, FutureMask, attend
from alibi_fairseq.positions import GateBias, PositionConfig, build_position_method

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


def test_gates_of_new_tokens_alone_raise():
    """The running sums of cached keys are missing."""
    log_gate_sums = METHOD.log_gates(0, torch.randn(5, 2, 32)).double().cumsum(2)  # (B, H, T)
    with pytest.raises(ValueError, match=r"\(2, 4, 9\), not \(2, 4, 5\)"):
        attend_to(FutureMask(GateBias(log_gate_sums), 5, 9))


def test_unknown_backend_raises():
    for need_weights in (False, True):
        with pytest.raises(ValueError, match="no attention backend 'fast'.*eager"):
            attend_to(FutureMask(None, 5, 9), backend="fast", need_weights=need_weights)


@pytest.mark.parametrize("backend", ["auto", *BACKENDS])
@pytest.mark.parametrize("lengths", [(5, 10), (4, 9), (9, 9)], ids=str)
def test_mask_of_mismatched_lengths_raises(backend, lengths):
    with pytest.raises(ValueError, match="The mask is for .* queries"):
        attend_to(FutureMask(None, *lengths), backend=backend)


def test_more_queries_than_keys_raise():
    with pytest.raises(ValueError, match=r"more queries \(9\) than keys \(5\)"):
        FutureMask(None, 9, 5)


def test_negative_window_raises():
    with pytest.raises(ValueError, match="not -1"):
        FutureMask(None, 5, 9, window=-1)


@pytest.mark.parametrize("name", ["key_padding", "document_start"])
def test_limits_of_mismatched_lengths_raise(name):
    with pytest.raises(ValueError, match=rf"{name} must be \(B, 9\)"):
        FutureMask(None, 5, 9, **{name: torch.zeros(2, 5, dtype=torch.long)})


def test_tensors_of_mismatched_shapes_raise():
    q, k, v = torch.randn(3, 2, 4, 9, 8)
    mask = FutureMask(None, 9, 9)
    for wrong in ((q[:, :2], k, v), (q[:1], k, v), (q[..., :4], k, v), (q, k, v[:, :, 1:])):
        with pytest.raises(ValueError, match="Attention needs q"):
            attend(*wrong, mask)
