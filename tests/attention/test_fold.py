"""How precisely extra head dimensions hold slopes and positions."""

from __future__ import annotations

import pytest
import torch
from attention_calls import Call

from alibi_fairseq.attention import attend
from alibi_fairseq.attention.fold import position_parts, slope_parts
from alibi_fairseq.positions import alibi_slopes

TYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("heads", [8, 12, 16])
@pytest.mark.parametrize("width", [64, 128])
def test_slopes_are_split_to_the_precision_of_fp32(dtype, heads, width):
    parts = slope_parts(alibi_slopes(heads), width).to(dtype)
    exact = alibi_slopes(heads).double() * width**0.5
    # fp16 has no numbers below 6e-8: at 16 thousand keys that is a thousandth in the exponent.
    torch.testing.assert_close(parts.double().sum(-1), exact, rtol=2**-23, atol=6e-8)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_positions_are_exact(dtype):
    positions = torch.arange(65_000)
    parts = position_parts(positions, dtype).to(dtype)
    assert torch.equal(parts.double().sum(0), positions.double())


@pytest.mark.parametrize("heads", [8, 12])
def test_error_against_float64_at_16_thousand_keys(heads):
    """The bound that the module states, where absolute positions are off by 8e-5."""
    call = Call(heads=heads, batch=1, length=32, cached=16_352, width=64)
    q, k, v, _ = call.tensors()
    exact, _ = attend(q.double(), k.double(), v.double(), call.mask(), backend="eager")
    folded, _ = attend(q, k, v, call.mask(), backend="fold", strict=True)
    assert ((folded.double() - exact).abs().max() / exact.abs().max()) < 5e-6


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_long_rows_in_half_precision(dtype):
    """Rounding of the inputs aside, the type's own rounding of the result is all there is."""
    call = Call(batch=1, heads=8, length=64, cached=8_000, width=64, dtype=dtype)
    q, k, v, _ = call.tensors()
    exact, _ = attend(q.double(), k.double(), v.double(), call.mask(), backend="eager")
    folded, _ = attend(q, k, v, call.mask(), backend="fold", strict=True)
    error = (folded.double() - exact).abs().max() / exact.abs().max()
    assert error < 2 * torch.finfo(dtype).eps
