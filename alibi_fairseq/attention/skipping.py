"""ALiBi without the keys that it certainly makes irrelevant.

Each head is computed only as far back as :mod:`~alibi_fairseq.attention.certificate` says it must
be, from the queries and keys at hand: on the CPU by :mod:`~alibi_fairseq.attention.banded`, on a
GPU by FlexAttention with a band of blocks per head. The result is the dense one to rounding; where
a bound does not hold, the head is computed in full.
"""

from __future__ import annotations

from torch import Tensor

from ..positions import ScoreBias
from ..positions.alibi import LinearBias
from . import banded, flex
from .certificate import certify
from .future_mask import FutureMask


def supports(bias: ScoreBias | None) -> bool:
    """ALiBi: only a bias that grows with distance without bound makes keys irrelevant."""
    return isinstance(bias, LinearBias)


def unsupported_reason(
    q: Tensor, k: Tensor, v: Tensor, mask: FutureMask, dropout_p: float
) -> str | None:
    """Why this call cannot be computed here, or None."""
    if not supports(mask.bias):
        return "skipping can express ALiBi and no other bias"
    if dropout_p > 0:
        return "skipping has no attention dropout"
    if mask.key_padding is not None:
        return "skipping cannot hide padding in front of tokens"
    if q.device.type != "cpu":
        reason = flex.unsupported_reason(q, k, v, mask, dropout_p)
        return None if reason is None else f"skipping uses flex on a GPU, and {reason}"
    return None


def attend(q: Tensor, k: Tensor, v: Tensor, mask: FutureMask, dropout_p: float) -> Tensor:
    """Attention output (B, H, T, D); arguments as in :func:`alibi_fairseq.attention.attend`."""
    slopes = mask.bias.slopes(q.device)
    certificate = certify(q, k, slopes)
    if q.device.type == "cpu":
        return banded.attend(q, k, v, slopes, certificate)
    return flex.attend(q, k, v, mask, dropout_p, windows=certificate.windows)
