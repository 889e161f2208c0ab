"""Rotation frequencies of rotary position embeddings, and their scaling for longer input.

Pair i of r rotated features turns by θ^(−2i/r) per position, where θ is the base. A scaling slows
the rotation, so that input F times as long as in training has only angles seen in training. It is
used for evaluation, and for continuing training at a longer length L → F·L:

- ``pi``, position interpolation (Chen et al. 2023, https://arxiv.org/abs/2306.15595): all
  frequencies are divided by F.
- ``ntk`` (bloc97 2023, "NTK-aware scaled RoPE"): the base is multiplied by F^(r/(r − 2)). This
  divides the slowest frequency by F and does not change the fastest.
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
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import UserInputError
from .base import PositionConfig

BASE = 10000.0
SCALINGS = ("pi", "ntk", "yarn", "llama3", "longrope")
#: Turns in L tokens: the most of a divided frequency, and the least of an unchanged one.
TURNS = {"yarn": (1.0, 32.0), "llama3": (1.0, 4.0)}


def pair_frequencies(
    features: int, device: torch.device | None = None, base: float = BASE
) -> Tensor:
    """Return the angle per position of each pair of rotated features, (r/2,) in fp32."""
    return 1.0 / _inverse_frequencies(features, device, base)


def _inverse_frequencies(features: int, device: torch.device | None, base: float) -> Tensor:
    exponents = torch.arange(0, features, 2, dtype=torch.float32, device=device) / features
    return base**exponents


@dataclass(frozen=True)
class Scaling:
    """Scaling of the rotation for longer input.

    Attributes:
        kind: one of ``SCALINGS``.
        factor: F, or None for the ratio of the lengths.
        length: L, the training length of the unscaled rotation in tokens.
        few_turns, many_turns: limits of ``yarn`` and ``llama3``, see ``TURNS``.
        short_factors, long_factors: divisors of ``longrope``, one per pair.
    """

    kind: str
    factor: float | None
    length: int
    few_turns: float = 1.0
    many_turns: float = 32.0
    short_factors: tuple[float, ...] = ()
    long_factors: tuple[float, ...] = ()

    @property
    def depends_on_key_count(self) -> bool:
        """True if a token's rotation depends on the number of tokens in the forward pass."""
        return self.factor is None or self.kind == "longrope"

    def at(
        self, keys: int, features: int, device: torch.device, base: float = BASE
    ) -> tuple[Tensor, float]:
        """Return the frequencies for a text of ``keys`` tokens, and the factor of queries and keys.

        Args:
            features: r, features that rotate.
            base: θ of the unscaled rotation.

        Returns:
            (r/2,) in fp32, and a number.
        """
        factor = max(1.0, keys / self.length) if self.factor is None else self.factor
        unscaled = pair_frequencies(features, device, base)
        if self.kind == "pi":
            return unscaled / factor, 1.0
        if self.kind == "ntk":
            return pair_frequencies(features, device, ntk_base(base, factor, features)), 1.0
        if self.kind == "longrope":
            factors = self.long_factors if keys > self.length else self.short_factors
            size = math.sqrt(1 + math.log(factor) / math.log(self.length))
            divisors = torch.tensor(factors, device=device)
            return 1.0 / (divisors * _inverse_frequencies(features, device, base)), size
        if self.kind == "llama3":
            turns = unscaled * self.length / (2 * math.pi)
            unscaled_weight = (turns - self.few_turns) / (self.many_turns - self.few_turns)
            unscaled_weight = unscaled_weight.clamp(0, 1)
            return unscaled / factor * (1 - unscaled_weight) + unscaled * unscaled_weight, 1.0
        low = max(math.floor(self._pair_that_turns(self.many_turns, features, base)), 0)
        high = min(math.ceil(self._pair_that_turns(self.few_turns, features, base)), features - 1)
        pairs = torch.arange(features // 2, dtype=torch.float32, device=device)
        scaled_weight = ((pairs - low) / (high - low if high != low else 0.001)).clamp(0, 1)
        frequencies = unscaled / factor * scaled_weight + unscaled * (1 - scaled_weight)
        return frequencies, 0.1 * math.log(factor) + 1

    def _pair_that_turns(self, times: float, features: int, base: float) -> float:
        """Return the pair, with a fraction, that turns so many times in L tokens."""
        turned = math.log(self.length / (times * 2 * math.pi)) / math.log(base)
        return features * turned / 2


def ntk_base(base: float, factor: float, features: int) -> float:
    """Return the base that divides the slowest of the frequencies by F."""
    return base * factor ** (features / max(features - 2, 1))


def parse_scaling(config: PositionConfig, features: int) -> Scaling | None:
    """Return the scaling that ``rotary_scaling`` asks for, or None for ``none``.

    Args:
        features: r, features that rotate.

    Raises:
        UserInputError: if it is not of the form KIND:F, KIND:F:L or KIND:F:L:FEW:MANY, or an option
            of ``longrope`` is missing or left over.
    """
    given = config.rotary_scaling
    kind, *values = given.split(":")
    lists = (config.longrope_short_factors, config.longrope_long_factors)
    if kind != "longrope" and lists != ("none", "none"):
        raise UserInputError(
            "--longrope-short-factors and --longrope-long-factors require --rotary-scaling "
            "longrope. Drop them."
        )
    if given == "none":
        return None
    scaling = _parse_numbers(kind, values, config.train_length)
    if scaling is None:
        raise UserInputError(
            f"--rotary-scaling must be none, or {', '.join(SCALINGS[:-1])} or {SCALINGS[-1]} with "
            "a factor of at least 1, such as yarn:4, or (not longrope) 'dynamic', such as "
            f"ntk:dynamic, not '{given}'. The length trained at before can follow (yarn:4:512), "
            "and for yarn and llama3 the turns up to which a frequency is divided and from which "
            "on it is kept (llama3:8:8192:1:4)."
        )
    if kind != "longrope":
        return scaling
    short_factors = _parse_factors("--longrope-short-factors", lists[0], features // 2)
    long_factors = _parse_factors("--longrope-long-factors", lists[1], features // 2)
    return Scaling(
        kind,
        scaling.factor,
        scaling.length,
        short_factors=short_factors,
        long_factors=long_factors,
    )


def with_length(scaling: str, train_length: int | None) -> str:
    """Return a ``rotary_scaling`` with the length that it implies.

    The length of ``pi`` and ``ntk`` only matters with ``dynamic``. No ``dynamic`` scaling changes
    the rotation of a text as long as in training, so trainings at several lengths agree on it.
    """
    kind, *values = scaling.split(":")
    implies_length = kind in ("yarn", "llama3", "longrope") and len(values) == 1
    if implies_length and values != ["dynamic"]:
        return f"{scaling}:{train_length}"
    return scaling


def _parse_numbers(kind: str, values: list[str], train_length: int) -> Scaling | None:
    """Return a scaling without its lists, or None if a value is missing, surplus, or invalid."""
    if kind not in SCALINGS or len(values) not in (1, 2, 4):
        return None
    few, many = TURNS.get(kind, (1.0, 32.0))
    try:
        factor = None if values[0] == "dynamic" else float(values[0])
        length = int(values[1]) if len(values) > 1 else train_length
        if len(values) == 4:
            few = float(values[2])
            many = float(values[3])
    except ValueError:
        return None
    valid = length >= 1 and 0 < few < many < math.inf
    if factor is not None:
        valid = valid and 1 <= factor < math.inf
    if kind == "longrope":
        valid = valid and factor is not None and length >= 2
    if kind not in TURNS:
        valid = valid and len(values) < 4
    return Scaling(kind, factor, length, few, many) if valid else None


def _parse_factors(flag: str, given: str, pairs: int) -> tuple[float, ...]:
    """Return the numbers of a list that is separated by commas, one per pair of features.

    Raises:
        UserInputError: if there are more or fewer, or one is not a positive number.
    """
    try:
        factors = tuple(float(number) for number in given.split(","))
    except ValueError:
        factors = ()
    if len(factors) != pairs or not all(0 < factor < math.inf for factor in factors):
        raise UserInputError(
            f"{flag} must be {pairs} positive numbers separated by commas, one for each pair of "
            f"rotated features, not '{given}'."
        )
    return factors
