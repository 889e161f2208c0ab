"""Cached keys or values that grow in place, so that a new token does not copy those before it.

Shapes: T new tokens, S cached ones, B batch, H heads, D head size.
"""

from __future__ import annotations

import torch
from torch import Tensor

#: Room for so many more tokens, or for half as many as there are, whichever is more.
_ROOM = 64
_BUFFER = "_buffer_with_room"
_FILLED = "_tokens_filled"


def appended(cached: Tensor, new: Tensor) -> Tensor:
    """``torch.cat([cached, new], dim=2)``, in the memory of ``cached`` where that has room.

    The result is a part of a larger buffer that remembers how far it is filled. Only the part that
    reaches so far is extended in place: two continuations of the same tokens never share what
    follows, and ``cached`` keeps its values. Reordering for beam search makes tensors without a
    buffer, which are copied as by ``torch.cat``.

    Args:
        cached: (B, H, S, D), possibly an earlier result.
        new: (B, H, T, D).

    Returns:
        (B, H, S + T, D).
    """
    if torch.is_grad_enabled() and (cached.requires_grad or new.requires_grad):
        return torch.cat([cached, new], dim=2)
    start, end = cached.shape[2], cached.shape[2] + new.shape[2]
    buffer = getattr(cached, _BUFFER, None)
    if buffer is None or not _can_take(buffer, start, end):
        batch, heads, _, size = cached.shape
        buffer = cached.new_empty(batch, heads, end + max(_ROOM, end // 2), size)
        buffer[:, :, :start] = cached
    buffer[:, :, start:end] = new
    setattr(buffer, _FILLED, end)
    result = buffer[:, :, :end]
    setattr(result, _BUFFER, buffer)
    return result


def _can_take(buffer: Tensor, start: int, end: int) -> bool:
    """Whether tokens from ``start`` to ``end`` are the next ones of a buffer and have room there."""
    writable = torch.is_inference_mode_enabled() or not buffer.is_inference()
    return writable and getattr(buffer, _FILLED) == start and end <= buffer.shape[2]
