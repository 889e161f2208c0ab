"""The protocol of attention backends, and the choice of one for a call.

On the CPU the borders are those of ``results/benchmarks/backends-cpu.json``, which
``python -m benchmarks.backends`` measures with one thread and with two, and a test compares with the
choices made here: skipping pays where it leaves a small enough share of the scores, and on several
threads a smaller one for narrow heads, whose dense kernels are quicker there. The order on a GPU is
reasoned, not measured yet.

Shapes: B batch, H heads, T queries, S keys, D head size.
"""

from __future__ import annotations

import functools
import logging
from typing import Protocol

import torch
from torch import Tensor

from ..errors import UserInputError
from ..positions import GateBias
from ..positions.alibi import LinearBias
from . import eager, flash, flex, fold, sdpa, skipping
from .future_mask import FutureMask
from .skipping import typical_share

logger = logging.getLogger(__name__)


class Backend(Protocol):
    """One way to compute causal attention with a score bias: a module with these two functions.

    ``q``, ``k``, ``v``, ``mask`` and ``dropout_p`` are those of :func:`alibi_fairseq.attention.attend`.
    """

    def unsupported_reason(
        self, q: Tensor, k: Tensor, v: Tensor, mask: FutureMask, dropout_p: float
    ) -> str | None:
        """Why this backend cannot compute a call, as a clause for a message; None if it can."""
        ...

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: FutureMask, dropout_p: float) -> Tensor:
        """The output, (B, H, T, D) in the dtype of v."""
        ...


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
#: … and where it leaves at most this share of the scores, by smallest head size. The share is that of a
#: trained model with these slopes, since the call's own would take a certificate to know.
SHARE_TO_SKIP_IN_TRAINING = {0: 0.65, 32: 0.75}
SHARE_TO_SKIP_IN_EVALUATION = {0: 0.535, 64: 0.75}
SHARE_TO_SKIP_ON_ONE_THREAD = {0: 0.75}
#: Folding pays from so many keys on, by smallest head size.
KEYS_TO_FOLD_IN_TRAINING = {0: 2048.0}
KEYS_TO_FOLD_IN_EVALUATION = {0: 1024.0, 64: 2048.0}
#: On a GPU the dense kernels have more of the machine to themselves: skip only from here on.
SHORTEST_TO_SKIP_ON_GPU = 4096


def check_backend(name: str) -> None:
    """Raises UserInputError unless ``name`` is a backend or ``auto``."""
    if name not in ("auto", *BACKENDS):
        raise UserInputError(
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
    """The name of the backend for one call; arguments as in :func:`alibi_fairseq.attention.attend`.

    Raises:
        UserInputError: if ``strict`` and the backend of that name cannot compute this call. Without
            ``strict`` a warning is logged and another one chosen.
    """
    call = (q, k, v, mask, dropout_p)
    if name != "auto":
        reason = BACKENDS[name].unsupported_reason(*call)
        if reason is None:
            return name
        instead = _automatic(*call)
        if strict:
            raise UserInputError(
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
    if isinstance(mask.bias, GateBias):
        return ("fold",) if q.shape[2] > 1 else ()
    if not isinstance(mask.bias, LinearBias):
        # FlexAttention needs no mask in memory; SDPA's causal kernel neither.
        causal = mask.bias is None and not mask.window and mask.document_start is None
        return ("sdpa",) if causal or q.device.type == "cpu" else ("flex", "sdpa")
    queries = q.shape[2]
    if q.device.type == "cpu":
        return _preferences_on_a_cpu(q, mask)
    if queries == 1:
        return ("flash", "sdpa")
    if queries >= SHORTEST_TO_SKIP_ON_GPU:
        return ("skipping", "flash", "fold")
    if dropout_p > 0:
        return ("flash", "fold")
    return ("flash", "flex", "fold")


def _preferences_on_a_cpu(q: Tensor, mask: FutureMask) -> tuple[str, ...]:
    queries, width = q.shape[-2:]
    if queries < QUERIES_TO_SKIP:
        return ()
    training = q.requires_grad and torch.is_grad_enabled()
    share = SHARE_TO_SKIP_IN_TRAINING if training else SHARE_TO_SKIP_IN_EVALUATION
    if torch.get_num_threads() == 1:
        share = SHARE_TO_SKIP_ON_ONE_THREAD
    assert isinstance(mask.bias, LinearBias)  # see _preferences()
    slopes = mask.bias.slopes(torch.device("cpu")).tolist()
    if typical_share(slopes, queries, mask.keys) <= at_width(share, width):
        return ("skipping", "fold")
    keys = KEYS_TO_FOLD_IN_TRAINING if training else KEYS_TO_FOLD_IN_EVALUATION
    return ("fold",) if mask.keys >= at_width(keys, width) else ()


def at_width(borders: dict[int, float], width: int) -> float:
    """The entry of the largest head size that is at most ``width``."""
    return borders[max(size for size in borders if size <= width)]


@functools.lru_cache(maxsize=256)
def _log_once(level: int, message: str) -> None:
    logger.log(level, message)
