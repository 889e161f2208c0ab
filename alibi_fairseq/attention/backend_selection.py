"""Protocol of attention backends, and selection of a backend for a call.

The thresholds for the CPU come from ``results/benchmarks/backends-cpu.json``, which
``python -m benchmarks.backends`` measures with one thread and with two. A test compares these
measurements with the selection. Skipping pays where it leaves a small enough fraction of the
scores. On several threads that fraction is smaller for narrow heads, whose dense kernels are faster
there. The order of backends on a GPU comes from ``results/benchmarks/attention-cuda.json``.

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
from ..positions.alibi import is_linear
from . import eager, flash, flex, fold, sdpa, skipping
from .future_mask import FutureMask
from .skipping import typical_fraction

logger = logging.getLogger(__name__)


class Backend(Protocol):
    """Module that computes causal attention with a score bias.

    Both functions take the arguments of :func:`alibi_fairseq.attention.attend`.
    """

    def unsupported_reason(
        self, q: Tensor, k: Tensor, v: Tensor, mask: FutureMask, dropout_p: float
    ) -> str | None:
        """Return the reason a call is unsupported, as a clause for a message, or None."""
        ...

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: FutureMask, dropout_p: float) -> Tensor:
        """Return the output, (B, H, T, D) in the dtype of v."""
        ...


#: Backends by name. ``auto`` selects one of them for each call.
BACKENDS: dict[str, Backend] = {
    "eager": eager,
    "sdpa": sdpa,
    "fold": fold,
    "flex": flex,
    "flash": flash,
    "skipping": skipping,
}

#: Minimum query count for skipping on the CPU.
MIN_QUERIES_TO_SKIP = 128
#: Largest fraction of scores left for which skipping pays, by smallest head size. The fraction is
#: estimated for a trained model with the same slopes; to compute it for the call itself requires a
#: certificate.
MAX_FRACTION_IN_TRAINING = {0: 0.65, 32: 0.75}
MAX_FRACTION_IN_EVALUATION = {0: 0.535, 64: 0.75}
MAX_FRACTION_ON_ONE_THREAD = {0: 0.75}
#: Minimum key count for folding, by smallest head size.
MIN_KEYS_TO_FOLD_IN_TRAINING = {0: 2048.0}
MIN_KEYS_TO_FOLD_IN_EVALUATION = {0: 1024.0, 64: 2048.0}
#: Minimum query count for skipping on a GPU. On an H200 in bf16, it took 2.2 times as long as the
#: causal kernel without a bias at 16,384 keys, more than flex, and 0.73 times at 32,768.
MIN_QUERIES_TO_SKIP_ON_GPU = 32768


def check_backend(name: str) -> None:
    """Raise UserInputError unless ``name`` is a backend or ``auto``."""
    if name not in ("auto", *BACKENDS):
        raise UserInputError(
            f"There is no attention backend '{name}'. Choose one of: auto, {', '.join(BACKENDS)}."
        )


def choose_backend(
    name: str,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: FutureMask,
    dropout_p: float,
    strict: bool = False,
) -> str:
    """Select the backend for one call.

    Args:
        name: a backend, or ``auto``.
        q, k, v, mask, dropout_p: arguments of :func:`alibi_fairseq.attention.attend`.
        strict: reject a call that the named backend cannot compute. Otherwise a warning is logged
            and another backend is selected.

    Raises:
        UserInputError: if ``strict`` is set and the named backend cannot compute this call.
    """
    if name == "auto":
        selected = _select_automatically(q, k, v, mask, dropout_p)
        dtype = str(q.dtype).removeprefix("torch.")
        _log_once(logging.INFO, f"attention backend: {selected} ({q.device.type}, {dtype})")
        return selected
    reason = BACKENDS[name].unsupported_reason(q, k, v, mask, dropout_p)
    if reason is None:
        return name
    alternative = _select_automatically(q, k, v, mask, dropout_p)
    if strict:
        raise UserInputError(
            f"The attention backend {reason}. Use --attention-backend {alternative} or auto."
        )
    _log_once(logging.WARNING, f"The attention backend {reason}. Using {alternative} instead.")
    return alternative


def _select_automatically(
    q: Tensor, k: Tensor, v: Tensor, mask: FutureMask, dropout_p: float
) -> str:
    for name in _preferences(q, mask, dropout_p):
        if BACKENDS[name].unsupported_reason(q, k, v, mask, dropout_p) is None:
            return name
    return "sdpa"


def _preferences(q: Tensor, mask: FutureMask, dropout_p: float) -> tuple[str, ...]:
    """Return the backends to try for one call, fastest first; ``sdpa`` computes any call."""
    on_cpu = q.device.type == "cpu"
    num_queries = q.shape[2]
    if isinstance(mask.bias, GateBias):
        return ("fold",) if num_queries > 1 else ()
    if not is_linear(mask.bias):
        # Neither FlexAttention nor SDPA's causal kernel needs a mask in memory.
        causal = mask.bias is None and not mask.window and mask.document_start is None
        return ("sdpa",) if causal or on_cpu else ("flex", "sdpa")
    if on_cpu:
        return _linear_bias_preferences_on_cpu(q, mask)
    if num_queries == 1:
        return ("flash", "sdpa")
    if num_queries >= MIN_QUERIES_TO_SKIP_ON_GPU:
        return ("skipping", "flash", "flex", "fold")
    return ("flash", "flex", "fold")


def _linear_bias_preferences_on_cpu(q: Tensor, mask: FutureMask) -> tuple[str, ...]:
    num_queries, head_dim = q.shape[-2:]
    if num_queries < MIN_QUERIES_TO_SKIP:
        return ()
    training = q.requires_grad and torch.is_grad_enabled()
    if training:
        max_fractions = MAX_FRACTION_IN_TRAINING
        min_keys = MIN_KEYS_TO_FOLD_IN_TRAINING
    else:
        max_fractions = MAX_FRACTION_IN_EVALUATION
        min_keys = MIN_KEYS_TO_FOLD_IN_EVALUATION
    if torch.get_num_threads() == 1:
        max_fractions = MAX_FRACTION_ON_ONE_THREAD
    assert is_linear(mask.bias)  # see _preferences()
    slopes = mask.bias.slopes(torch.device("cpu")).tolist()
    fraction = typical_fraction(slopes, num_queries, mask.num_keys)
    if fraction <= threshold_for(max_fractions, head_dim):
        return ("skipping", "fold")
    if mask.num_keys >= threshold_for(min_keys, head_dim):
        return ("fold",)
    return ()


def threshold_for(thresholds: dict[int, float], head_dim: int) -> float:
    """Return the threshold of the largest listed head size that is at most ``head_dim``."""
    listed = max(size for size in thresholds if size <= head_dim)
    return thresholds[listed]


@functools.lru_cache(maxsize=256)
def _log_once(level: int, message: str) -> None:
    logger.log(level, message)
