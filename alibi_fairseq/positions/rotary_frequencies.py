"""Rotation frequencies of rotary position embeddings, and their scaling for longer input.

Pair i of r rotated features turns by θ^(−2i/r) per position, where θ is the base. A scaling slows
the rotation, so that input F times as long as in training has only angles seen in training. It is
used for evaluation, and for continuing training at a longer length L → F·L:

- ``pi``, position interpolation (Chen et al. 2023, https://arxiv.org/abs/2306.15595): all
  frequencies are divided by F.
- ``ntk`` (bloc97 2023, "NTK-aware scaled RoPE"): the base is multiplied by F^(r/(r − 2)). This
  divides the slowest frequency by F and does not change the fastest. ``ntk:dynamic`` is ``dynamic``
  with factor 1 in transformers, where another factor f means (f·S/L − f + 1)^(r/(r − 2)).
- ``yarn`` (Peng et al. 2023, https://arxiv.org/abs/2309.00071): a pair with more than 32 turns in L
  tokens keeps its frequency, and a pair with less than one turn is divided by F. Pairs in between
  are interpolated linearly by index. Queries and keys are multiplied by 0.1·ln F + 1.
- ``llama3`` (Dubey et al. 2024, https://arxiv.org/abs/2407.21783; the formula is in the code
  released with Llama 3.1): as ``yarn``, between 1 and 4 turns, and interpolated linearly by the
  number of turns. Queries and keys are not multiplied.
- ``longrope`` (Ding et al. 2024, https://arxiv.org/abs/2402.13753): each frequency has a separate
  divisor, from a short list up to L tokens and from a long list beyond. Queries and keys are
  multiplied by √(1 + ln F / ln L).

Only the features that rotate are multiplied, so not all of them with ``rotary_percent`` < 1.

F is a number ≥ 1, or ``dynamic`` for max(1, S / L) in every forward pass over S tokens, cached ones
included (not with ``longrope``). As in transformers, S also counts tokens outside an attention
window.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .options import RotaryScaling

BASE = 10000.0


def pair_frequencies(
    features: int, device: torch.device | None = None, base: float = BASE
) -> Tensor:
    """Return the angle per position of each pair of rotated features, (r/2,) in fp32."""
    return 1.0 / _inverse_frequencies(features, device, base)


def _inverse_frequencies(features: int, device: torch.device | None, base: float) -> Tensor:
    exponents = torch.arange(0, features, 2, dtype=torch.float32, device=device) / features
    return base**exponents


def scaled_frequencies(
    scaling: RotaryScaling, num_keys: int, features: int, device: torch.device, base: float = BASE
) -> tuple[Tensor, float]:
    """Return the frequencies for a text of ``num_keys`` tokens, and the factor of queries and keys.

    Args:
        scaling: scaling with its original length.
        features: r, features that rotate.
        base: θ of the unscaled rotation.

    Returns:
        (r/2,) in fp32, and the magnitude of q and k.
    """
    length = scaling.original_length
    assert length is not None, "a rotary method knows the length"
    factor = max(1.0, num_keys / length) if scaling.factor is None else scaling.factor
    unscaled = pair_frequencies(features, device, base)
    if scaling.kind == "pi":
        return unscaled / factor, 1.0
    if scaling.kind == "ntk":
        return pair_frequencies(features, device, ntk_base(base, factor, features)), 1.0
    if scaling.kind == "longrope":
        factors = scaling.long_factors if num_keys > length else scaling.short_factors
        magnitude = math.sqrt(1 + math.log(factor) / math.log(length))
        divisors = torch.tensor(factors, device=device)
        return 1.0 / (divisors * _inverse_frequencies(features, device, base)), magnitude
    if scaling.kind == "llama3":
        turns = unscaled * length / (2 * math.pi)
        unscaled_weight = (turns - scaling.few_turns) / (scaling.many_turns - scaling.few_turns)
        unscaled_weight = unscaled_weight.clamp(0, 1)
        return unscaled / factor * (1 - unscaled_weight) + unscaled * unscaled_weight, 1.0

    def pair_that_turns(times: float) -> float:  # in the original length, with a fraction
        turned = math.log(length / (times * 2 * math.pi)) / math.log(base)
        return features * turned / 2

    low = max(math.floor(pair_that_turns(scaling.many_turns)), 0)
    high = min(math.ceil(pair_that_turns(scaling.few_turns)), features - 1)
    pairs = torch.arange(features // 2, dtype=torch.float32, device=device)
    scaled_weight = ((pairs - low) / (high - low if high != low else 0.001)).clamp(0, 1)
    frequencies = unscaled / factor * scaled_weight + unscaled * (1 - scaled_weight)
    return frequencies, 0.1 * math.log(factor) + 1


def ntk_base(base: float, factor: float, features: int) -> float:
    """Return the base that divides the slowest of the frequencies by F."""
    return base * factor ** (features / max(features - 2, 1))
