"""Which keys ALiBi certainly makes irrelevant, from bounds on the actual queries and keys.

A head of slope m damps a key at distance d by e^(−m·d). Softmax does not change when one vector μ
is taken off all keys, so for query i, whose own key is i, every earlier key j scores at most

    s_ij − s_ii ≤ rise_i = |q_i|·max_j|k_j − μ|/√D − q_i·(k_i − μ)/√D        (Cauchy-Schwarz)

above the query's own key, and all keys further away than w together weigh at most

    e^rise_i · Σ_{d>w} e^(−m·d) = e^(rise_i − m·(w+1)) / (1 − e^−m)

times what the query's own key weighs, hence at most that share of the row. Where the share is
below ε/8 (ε of the type of the values), the keys together move no output by more than half a unit
in the last place of the largest value: |Δo| ≤ 2·share·max|v|, and |Δ(∂L/∂s_ij)| likewise. Solving
for w gives one window per head. Nothing is assumed about the weights: large queries and keys make
the windows wide, and a window as long as the sequence is the dense computation.

Cost: O(T·D), three passes over the queries and keys.

Shapes: B batch, H heads, T queries, S keys, D head size.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Certificate(NamedTuple):
    """What can be said about all scores of one call, relative to each query's own key.

    Attributes:
        own: (B, H, T) scaled score of each query with its own key, without bias.
        rise: (H,) no score without bias exceeds the query's own by more than this.
        windows: (H,) float: keys further away than this may be skipped; at most S.
    """

    own: Tensor
    rise: Tensor
    windows: Tensor


@torch.no_grad()
def certify(q: Tensor, k: Tensor, slopes: Tensor) -> Certificate:
    """Bounds and windows of one call.

    Args:
        q: (B, H, T, D) unscaled queries.
        k: (B, H, S, D) keys; the last T belong to the queries.
        slopes: (H,) positive fp32.
    """
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
    # The norms are rounded sums of D terms each: widen by more than they can be off.
    slack = 4 * q.shape[-1] * torch.finfo(precise).eps
    reach = reach * (1 + slack) + own.abs() * slack
    rise = (reach - own_centred).amax(dim=(0, 2))  # (H,)
    slopes = slopes.to(precise)
    tail = -torch.log(-torch.expm1(-slopes))  # ln Σ_d e^(−m·d)
    windows = torch.ceil((rise + tail - torch.log(torch.tensor(share))) / slopes)
    # Anything that is not a number (overflow in the norms) means: no certificate.
    windows = torch.where(windows < keys, windows, keys)
    return Certificate(own, rise, windows)
