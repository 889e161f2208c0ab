"""Which backend computes a call.

The order of preference on the CPU follows measurements of attention alone with two threads: ALiBi
with skipping is ahead of the dense kernels from 1,024 queries to as many keys on, and with fewer
queries where there are more keys; everything else is fastest in torch's own kernels. The order on a
GPU is reasoned, not measured yet. ``python -m benchmarks.suite`` measures both.
"""

from __future__ import annotations

import functools
import logging

from torch import Tensor

from ..errors import BadInput
from . import eager, flash, flex, fold, sdpa, skipping
from .backend import Backend
from .future_mask import FutureMask

logger = logging.getLogger(__name__)

#: Backends by name; ``auto`` picks one of them for each call.
BACKENDS: dict[str, Backend] = {
    "eager": eager,
    "sdpa": sdpa,
    "fold": fold,
    "flex": flex,
    "flash": flash,
    "skipping": skipping,
}

#: Looking for keys to skip pays with so many queries at least …
QUERIES_TO_SKIP = 128
#: … and where queries and keys together are at least so many.
LENGTHS_TO_SKIP = 2048
#: On a GPU the dense kernels have more of the machine to themselves: skip only from here on.
SHORTEST_TO_SKIP_ON_GPU = 4096


def check_backend(name: str) -> None:
    """Raises BadInput unless ``name`` is a backend or ``auto``."""
    if name not in ("auto", *BACKENDS):
        raise BadInput(
            f"There is no attention backend '{name}'. Choose one of: auto, {', '.join(BACKENDS)}."
        )


def choose(
    name: str,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: FutureMask,
    dropout_p: float,
    strict: bool = False,
) -> str:
    """The name of the backend for one call.

    Args:
        name: a key of ``BACKENDS``, or ``auto``.
        strict: raise if that backend cannot compute this call, instead of logging a warning and
            choosing another one.
        others: as in :func:`alibi_fairseq.attention.attend`.

    Raises:
        BadInput: if ``strict`` and the backend cannot compute this call.
    """
    call = (q, k, v, mask, dropout_p)
    if name != "auto":
        reason = BACKENDS[name].unsupported_reason(*call)
        if reason is None:
            return name
        instead = _automatic(*call)
        if strict:
            raise BadInput(
                f"The attention backend {reason}: use --attention-backend {instead} or auto."
            )
        _log_once(logging.WARNING, f"The attention backend {reason}; {instead} is used instead.")
        return instead
    chosen = _automatic(*call)
    kind = f"{q.device.type}, {q.dtype}".replace("torch.", "")
    _log_once(logging.INFO, f"attention backend: {chosen} ({kind})")
    return chosen


def _automatic(q: Tensor, k: Tensor, v: Tensor, mask: FutureMask, dropout_p: float) -> str:
    for name in _preferences(q, mask, dropout_p):
        if BACKENDS[name].unsupported_reason(q, k, v, mask, dropout_p) is None:
            return name
    return "sdpa"


def _preferences(q: Tensor, mask: FutureMask, dropout_p: float) -> tuple[str, ...]:
    if mask.bias is None or not fold.supports(mask.bias):
        # FlexAttention needs no mask in memory; SDPA's causal kernel neither.
        causal = mask.bias is None and not mask.window
        return ("sdpa",) if causal or q.device.type == "cpu" else ("flex", "sdpa")
    queries = q.shape[2]
    if q.device.type == "cpu":
        many = queries >= QUERIES_TO_SKIP and queries + mask.keys >= LENGTHS_TO_SKIP
        return ("skipping",) if many else ()
    if queries == 1:
        return ("flash", "sdpa")
    if queries >= SHORTEST_TO_SKIP_ON_GPU:
        return ("skipping", "flash", "fold")
    if dropout_p > 0:
        return ("flash", "fold")
    return ("flash", "flex", "fold")


@functools.lru_cache(maxsize=256)
def _log_once(level: int, message: str) -> None:
    logger.log(level, message)
