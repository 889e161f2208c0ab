"""ALiBi without keys whose weight is provably negligible.

A head with slope m scales the weight of a key at distance d by e^(−m·d). Softmax does not change
when a vector μ is subtracted from all keys, so for query i the score of any earlier key j is
bounded by

    s_ij − s_ii ≤ rise_i = |q_i|·max_j|k_j − μ|/√D − q_i·(k_i − μ)/√D        (Cauchy-Schwarz)

and the total weight of all keys at a distance greater than w is at most

    e^rise_i · Σ_{d>w} e^(−m·d) = e^(rise_i − m·(w+1)) / (1 − e^−m)

times the weight of the query's own key, hence at most that fraction of the row. If the fraction is
below ε/8 (ε is the machine epsilon of the dtype of the queries), these keys change no output by
more than half a unit in the last place of the largest value: |Δo| ≤ 2·fraction·max|v|, and
|Δ(∂L/∂s_ij)| is bounded in the same way. Solving for w gives one window per sequence and head. A
head without a bias (m = 0) has no limit. Nothing is assumed about the weights: large queries and
keys widen the windows, and a window as long as the sequence is the dense computation.

Prior art: Adaptive Computation Pruning (https://arxiv.org/abs/2504.06949) bounds the scores of the
Forgetting Transformer by 2·max|q|·max|k|/√D. The bound above is per query and after centering.

Three kernels stay within the windows. On the CPU it is :mod:`~alibi_fairseq.attention.banded`. On a
GPU it is flash-attn with a window per group of heads, if that package is installed, or else
FlexAttention with a band of blocks per sequence and head.

Cost of the bounds: O(T·D), three passes over the queries and keys.

Shapes: B batch, H heads, T queries, S keys, D head size.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ..positions.alibi import is_linear
from . import banded, flash, flex
from .future_mask import FutureMask


def unsupported_reason(
    q: Tensor, k: Tensor, v: Tensor, mask: FutureMask, dropout_p: float
) -> str | None:
    """Return the reason a call is unsupported, or None."""
    if not is_linear(mask.bias):  # another bias may not grow without bound
        return "skipping supports no bias other than ALiBi"
    if dropout_p > 0:
        return "skipping has no attention dropout"
    if mask.key_padding is not None:
        return "skipping does not support left padding"
    if mask.window:
        return "skipping does not support an attention window"
    if mask.document_start is not None:
        return "skipping does not support several documents in a window"
    if q.device.type == "cpu" or flash.unsupported_reason(q, k, v, mask, dropout_p) is None:
        return None
    reason = flex.unsupported_reason(q, k, v, mask, dropout_p)
    if reason is None:
        return None
    return f"skipping uses flex on a GPU, and {reason}"


def attend(q: Tensor, k: Tensor, v: Tensor, mask: FutureMask, dropout_p: float) -> Tensor:
    """Return the output, (B, H, T, D); arguments as in :func:`alibi_fairseq.attention.attend`."""
    assert is_linear(mask.bias)  # see unsupported_reason()
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
        windows: (B, H) floats, at most S. Keys at a greater distance may be skipped.
    """

    own: Tensor
    rise: Tensor
    windows: Tensor


@torch.no_grad()
def certify(q: Tensor, k: Tensor, slopes: Tensor) -> Certificate:
    """Compute bounds and windows; the formula is at the top of this file.

    Args:
        q: (B, H, T, D) unscaled queries.
        k: (B, H, S, D) keys.
        slopes: (H,) slopes of the heads, ≥ 0.
    """
    precise = torch.promote_types(q.dtype, torch.float32)
    negligible = torch.finfo(q.dtype).eps / 8
    q = q.to(precise)
    k = k.to(precise)
    num_queries = q.shape[2]
    num_keys = k.shape[2]
    head_dim = q.shape[3]
    scale = head_dim**-0.5

    center = k.mean(dim=2, keepdim=True)  # (B, H, 1, D)
    own_key = k[:, :, num_keys - num_queries :]  # (B, H, T, D)
    own = (q * own_key).sum(-1) * scale  # (B, H, T)
    own_centered = own - (q @ center.transpose(2, 3)).squeeze(-1) * scale
    largest_key = (k - center).norm(dim=-1).amax(dim=-1, keepdim=True)  # (B, H, 1)
    bound = q.norm(dim=-1) * largest_key * scale  # (B, H, T)
    # The norms are rounded sums of D terms: widen the bound by more than their rounding error.
    slack = 4 * head_dim * torch.finfo(precise).eps
    bound = bound * (1 + slack) + own.abs() * slack
    rise = (bound - own_centered).amax(dim=2)  # (B, H)

    slopes = slopes.to(precise)
    tail = -torch.log(-torch.expm1(-slopes))  # ln Σ_d e^(−m·d)
    windows = torch.ceil((rise + tail - math.log(negligible)) / slopes)  # infinite for a slope of 0
    # NaN (overflow in the norms) compares false, which disables skipping.
    windows = torch.where(windows < num_keys, windows, num_keys)
    return Certificate(own, rise, windows)


#: A certified window times the slope, for trained models in fp32: a rise of 16, ln(8 / ε) = 18 and
#: 3 for the sum over the tail.
TYPICAL_WINDOW = 37.0


def typical_fraction(slopes: list[float], num_queries: int, num_keys: int) -> float:
    """Estimate the fraction of the scores that is left when a trained model skips keys.

    Args:
        slopes: slope of each head.
        num_queries, num_keys: T and S.
    """
    first = num_keys - num_queries + 1  # keys visible to the first query
    visible = num_queries * (first + num_keys) / 2
    fraction = 0.0
    for slope in slopes:
        window = min(num_keys, TYPICAL_WINDOW / slope) if slope > 0 else num_keys
        growing = max(0.0, window - first)  # queries that see fewer keys than the window
        computed = growing * (first + window) / 2 + (num_queries - growing) * window
        fraction += min(1.0, computed / visible) / len(slopes)
    return fraction
