"""ALiBi without the keys that it provably makes negligible.

A head with slope m scales the weight of a key at distance d by e^(−m·d). Softmax does not change when
a vector μ is subtracted from all keys, so for query i the score of any earlier key j is bounded by

    s_ij − s_ii ≤ rise_i = |q_i|·max_j|k_j − μ|/√D − q_i·(k_i − μ)/√D        (Cauchy-Schwarz)

and the total weight of all keys at a distance greater than w is at most

    e^rise_i · Σ_{d>w} e^(−m·d) = e^(rise_i − m·(w+1)) / (1 − e^−m)

times the weight of the query's own key, hence at most that share of the row. If the share is below
ε/8 (machine epsilon of the dtype of the queries), these keys change no output by more than half a
unit in the last place of the largest value: |Δo| ≤ 2·share·max|v|, and |Δ(∂L/∂s_ij)| likewise.
Solving for w gives one window per sequence and head; a head without a bias (m = 0) has no limit. Nothing is assumed about the weights: large queries and keys
widen the windows, and a window as long as the sequence is the dense computation.

Prior art: Adaptive Computation Pruning (https://arxiv.org/abs/2504.06949) bounds the scores of the
Forgetting Transformer by 2·max|q|·max|k|/√D; the bound here is per query and after centring.

The kernels that stay within the windows: on the CPU :mod:`~alibi_fairseq.attention.banded`, on a GPU
flash-attn with a window per group of heads, where that package is installed, or else FlexAttention
with a band of blocks per sequence and head.

Cost of the bounds: O(T·D), three passes over the queries and keys.

Shapes: B batch, H heads, T queries, S keys, D head size.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ..positions.alibi import LinearBias
from . import banded, flash, flex
from .future_mask import FutureMask


def unsupported_reason(
    q: Tensor, k: Tensor, v: Tensor, mask: FutureMask, dropout_p: float
) -> str | None:
    """Why this backend cannot compute a call, or None."""
    if not isinstance(mask.bias, LinearBias):  # any other may not grow without bound
        return "skipping supports no bias other than ALiBi"
    if dropout_p > 0:
        return "skipping has no attention dropout"
    if mask.key_padding is not None:
        return "skipping does not support padding in front of tokens"
    if mask.window:
        return "skipping does not support an attention window"
    if mask.document_start is not None:
        return "skipping does not support several documents in a window"
    if q.device.type != "cpu" and flash.unsupported_reason(q, k, v, mask, dropout_p) is not None:
        reason = flex.unsupported_reason(q, k, v, mask, dropout_p)
        return None if reason is None else f"skipping uses flex on a GPU, and {reason}"
    return None


def attend(q: Tensor, k: Tensor, v: Tensor, mask: FutureMask, dropout_p: float) -> Tensor:
    """Attention output (B, H, T, D); arguments as in :func:`alibi_fairseq.attention.attend`."""
    assert isinstance(mask.bias, LinearBias)  # see unsupported_reason()
    slopes = mask.bias.slopes(q.device)
    certificate = certify(q, k, slopes)
    if q.device.type == "cpu":
        return banded.attend(q, k, v, slopes, *certificate)
    if flash.unsupported_reason(q, k, v, mask, dropout_p) is None:
        return flash.attend_within(q, k, v, slopes, certificate.windows.amax(dim=0))
    return flex.attend(q, k, v, mask, dropout_p, windows=certificate.windows)


class Certificate(NamedTuple):
    """Bounds on all scores of one call, relative to each query's own key.

    Attributes:
        own: (B, H, T) scaled score of each query with the key at its own position, without bias.
        rise: (B, H) upper bound on how far any score without bias exceeds the query's own.
        windows: (B, H) floats, at most S; keys at a greater distance may be skipped.
    """

    own: Tensor
    rise: Tensor
    windows: Tensor


@torch.no_grad()
def certify(q: Tensor, k: Tensor, slopes: Tensor) -> Certificate:
    """Bounds and windows of queries (B, H, T, D), unscaled, and keys (B, H, S, D); slopes (H,) ≥ 0."""
    precise = torch.promote_types(q.dtype, torch.float32)
    keys, scale = k.shape[2], q.shape[-1] ** -0.5
    share = torch.finfo(q.dtype).eps / 8
    q, k = q.to(precise), k.to(precise)
    centre = k.mean(dim=2, keepdim=True)  # (B, H, 1, D)
    aligned = k[:, :, keys - q.shape[2] :]  # (B, H, T, D)
    own = (q * aligned).sum(-1) * scale  # (B, H, T)
    own_centred = own - (q @ centre.transpose(2, 3)).squeeze(-1) * scale
    largest_key = (k - centre).norm(dim=-1).amax(dim=-1, keepdim=True)  # (B, H, 1)
    reach = q.norm(dim=-1) * largest_key * scale  # (B, H, T)
    # The norms are rounded sums of D terms: widen the bound by more than their rounding error.
    slack = 4 * q.shape[-1] * torch.finfo(precise).eps
    reach = reach * (1 + slack) + own.abs() * slack
    rise = (reach - own_centred).amax(dim=2)  # (B, H)
    slopes = slopes.to(precise)
    tail = -torch.log(-torch.expm1(-slopes))  # ln Σ_d e^(−m·d)
    windows = torch.ceil((rise + tail - math.log(share)) / slopes)  # infinite for a slope of 0
    # NaN (overflow in the norms) compares false, which disables skipping.
    windows = torch.where(windows < keys, windows, keys)
    return Certificate(own, rise, windows)


#: A certified window times the slope, for trained models in fp32: a rise of 16, ln(8 / ε) = 18 and
#: 3 for the sum over the tail.
TYPICAL_REACH = 37.0


def typical_share(slopes: list[float], queries: int, keys: int) -> float:
    """The share of the scores that is left when a trained model skips, guessed before any is known."""
    first = keys - queries + 1  # keys visible to the first query
    visible = queries * (first + keys) / 2
    share = 0.0
    for slope in slopes:
        window = min(keys, TYPICAL_REACH / slope) if slope > 0 else keys
        growing = max(0.0, min(window, keys) - first)  # queries that see fewer keys than the window
        seen = growing * (first + window) / 2 + (queries - growing) * min(window, keys)
        share += min(1.0, seen / visible) / len(slopes)
    return share
