"""How scores plus a described bias become an output: one interface, several backends.

Shapes: B batch, H heads, T queries, S keys, D head size.
"""

from __future__ import annotations

from torch import Tensor

from ..errors import BadInput
from . import eager, sdpa
from .future_mask import FutureMask

#: Backends that can be asked for by name; ``auto`` picks one of them for each call.
BACKENDS = ("eager", "sdpa")


def check_backend(name: str) -> None:
    """Stop with a sentence unless ``name`` is a backend or ``auto``."""
    if name not in ("auto", *BACKENDS):
        raise BadInput(
            f"There is no attention backend '{name}'. Choose one of: auto, {', '.join(BACKENDS)}."
        )


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: FutureMask,
    dropout_p: float = 0.0,
    backend: str = "auto",
    need_weights: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Causal attention with a bias.

    Args:
        q: (B, H, T, D) unscaled queries.
        k, v: (B, H, S, D) keys and values; S = T plus what is cached or remembered.
        mask: the future mask of this forward pass.
        dropout_p: probability of dropping an attention weight; 0 outside of training.
        backend: ``auto`` or one of ``BACKENDS``.
        need_weights: also return the attention weights, which only ``eager`` can.

    Returns:
        Output (B, H, T, D), and weights (B, H, T, S) in at least fp32 or None.
    """
    if need_weights or backend == "eager":
        output, weights = eager.attend(q, k, v, mask, dropout_p)
        return output, weights if need_weights else None
    return sdpa.attend(q, k, v, mask, dropout_p), None


__all__ = ["BACKENDS", "FutureMask", "attend", "check_backend"]
