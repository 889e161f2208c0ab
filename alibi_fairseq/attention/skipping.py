"""ALiBi without the keys that it provably makes negligible.

Each head attends only as far back as :mod:`~alibi_fairseq.attention.certificate` requires for the
given queries and keys: on the CPU through :mod:`~alibi_fairseq.attention.banded`, on a GPU through
flash-attn with a window per group of heads, where that package is installed, or through FlexAttention
with a band of blocks per sequence and head. The result equals dense attention up to rounding; where
no useful bound exists, the window is the whole sequence.
"""

from __future__ import annotations

from torch import Tensor

from ..positions import ScoreBias
from ..positions.alibi import LinearBias
from . import banded, flash, flex
from .certificate import certify
from .future_mask import FutureMask


def supports(bias: ScoreBias | None) -> bool:
    """ALiBi only: its bias grows with the distance without bound, so distant keys vanish."""
    return isinstance(bias, LinearBias)


def unsupported_reason(
    q: Tensor, k: Tensor, v: Tensor, mask: FutureMask, dropout_p: float
) -> str | None:
    """Why this backend cannot compute a call, or None."""
    if not supports(mask.bias):
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
    assert isinstance(mask.bias, LinearBias)  # see supports()
    slopes = mask.bias.slopes(q.device)
    certificate = certify(q, k, slopes)
    if q.device.type == "cpu":
        return banded.attend(q, k, v, slopes, certificate)
    if flash.unsupported_reason(q, k, v, mask, dropout_p) is None:
        return flash.attend_within(q, k, v, slopes, certificate.windows.amax(dim=0))
    return flex.attend(q, k, v, mask, dropout_p, windows=certificate.windows)
