"""The protocol that attention backends implement.

A backend is a module with these three functions (PEP 544 allows modules to implement protocols).

Shapes: B batch, H heads, T queries, S keys, D head size.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from torch import Tensor

from ..positions import ScoreBias
from .future_mask import FutureMask


@runtime_checkable
class Backend(Protocol):
    """One way to compute causal attention with a score bias."""

    def supports(self, bias: ScoreBias | None) -> bool:
        """Whether this backend can compute attention with such a bias, on any device."""
        ...

    def unsupported_reason(
        self, q: Tensor, k: Tensor, v: Tensor, mask: FutureMask, dropout_p: float
    ) -> str | None:
        """Why this backend cannot compute a call, as a clause for a message; None if it can.

        Arguments are those of :meth:`attend`.
        """
        ...

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: FutureMask, dropout_p: float) -> Tensor:
        """Causal attention.

        Args:
            q: (B, H, T, D) unscaled queries.
            k, v: (B, H, S, D) keys and values, S ≥ T.
            mask: the future mask of this forward pass, with its bias.
            dropout_p: probability of dropping an attention weight.

        Returns:
            (B, H, T, D) in the dtype of v.
        """
        ...
