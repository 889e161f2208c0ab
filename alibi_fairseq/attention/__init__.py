"""Causal attention with a score bias: one interface, several backends.

Shapes: B batch, H query heads, G key and value heads, T queries, S keys, D head size.
"""

from __future__ import annotations

from torch import Tensor

from . import eager
from .backend_selection import BACKENDS, check_backend, choose_backend
from .future_mask import SEPARATORS, FutureMask, start_of_each_document
from .score_scale import SCORE_SCALINGS, ScoreScale


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: FutureMask,
    dropout_p: float = 0.0,
    backend: str = "auto",
    need_weights: bool = False,
    strict: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Compute causal attention with a score bias.

    Args:
        q: (B, H, T, D) unscaled queries.
        k, v: (B, G, S, D) keys and values; S is T plus the number of cached keys or
            of states in the memory. Each is shared by H / G consecutive query heads.
        mask: causal mask of T queries and S keys, with the bias of the position method.
        dropout_p: probability of dropping an attention weight; 0 outside of training.
        backend: ``auto`` or one of ``BACKENDS``.
        need_weights: also return the attention weights, which only ``eager`` can provide.
        strict: raise if the backend cannot compute this call, instead of using another one.

    Returns:
        Output (B, H, T, D), and weights (B, H, T, S) in at least fp32 or None.

    Raises:
        UserInputError: (a ValueError) if there is no such backend, or if ``strict`` is set and the
            backend cannot compute this call.
    """
    check_backend(backend)
    k = repeat_heads(k, q.shape[1])  # (B, H, S, D)
    v = repeat_heads(v, q.shape[1])
    if need_weights:
        return eager.attend_with_weights(q, k, v, mask, dropout_p)
    name = choose_backend(backend, q, k, v, mask, dropout_p, strict)
    return BACKENDS[name].attend(q, k, v, mask, dropout_p), None


def repeat_heads(x: Tensor, num_heads: int) -> Tensor:
    """Repeat each key or value head, (B, G, S, D), for its query heads, (B, H, S, D).

    If G does not divide H, x is returned unchanged.
    """
    groups = x.shape[1]
    if groups == num_heads or num_heads % groups:
        return x
    return x.repeat_interleave(num_heads // groups, dim=1)


__all__ = [
    "BACKENDS",
    "SCORE_SCALINGS",
    "SEPARATORS",
    "FutureMask",
    "ScoreScale",
    "attend",
    "check_backend",
    "repeat_heads",
    "start_of_each_document",
]
