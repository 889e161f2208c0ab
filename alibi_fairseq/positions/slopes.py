"""Slopes of ALiBi other than the paper's: trainable, random, or given.

Section 3 of the paper mentions two of them. Trainable slopes "did not yield strong extrapolation
results" and made training 3 % slower (footnote 11). Slopes drawn from an exponential distribution
"worked well in some cases", with high variance.

Trainable: one parameter per head, the logarithm of the slope, which keeps it positive under any
optimiser; it starts at the paper's slopes. Cost: H parameters, and in training a bias that each layer
builds for itself, in a backend that can differentiate it.
Random: from an exponential distribution whose mean is that of the paper's slopes for that number of
heads (the paper does not give its mean). The draw depends on the seed of the training alone, which is
stored with the model.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from ..errors import BadInput
from .base import RelativeBias

if TYPE_CHECKING:
    from .alibi import Alibi

KINDS = ("paper", "trainable", "random")


@dataclass(frozen=True)
class TrainableLinearBias(RelativeBias):
    """−m_h·distance with a gradient for the slopes.

    Attributes:
        method: the module that holds the logarithms of the slopes, (H,). Not they themselves, since
            biases are compared, and since Python 3.13 that would compare tensors.
        divisor: all slopes are divided by it.
    """

    method: Alibi
    divisor: float = 1.0

    needs_grad = True

    def at(self, distance: Tensor) -> Tensor:
        assert self.method.log_slopes is not None
        slopes = self.method.log_slopes.float().exp() / self.divisor
        return -slopes.view(-1, *[1] * distance.dim()) * distance  # (H, *distance.shape)


def random_slopes(num_heads: int, mean: float, seed: int) -> tuple[float, ...]:
    """Slopes from an exponential distribution, the same on every machine.

    Python promises that ``random.random()`` repeats its sequence in later versions; torch does not.
    """
    generator = random.Random(seed)
    return tuple(-mean * math.log1p(-generator.random()) for _ in range(num_heads))


def given_slopes(option: str, num_heads: int) -> tuple[float, ...]:
    """Numbers separated by commas or white space, as a model stores them.

    Raises:
        BadInput: they are no numbers, not positive, or not one per head.
    """
    try:
        slopes = tuple(float(word) for word in option.replace(",", " ").split())
    except ValueError:
        raise BadInput(
            f"--alibi-slopes must be {', '.join(KINDS)} or numbers, not '{option}' (in YAML give the "
            "numbers themselves, separated by commas, and not a file)."
        ) from None
    if len(slopes) != num_heads:
        raise BadInput(
            f"--alibi-slopes gives {len(slopes)} slopes, but the model has {num_heads} heads."
        )
    for slope in slopes:
        if not (slope > 0 and math.isfinite(slope)):
            raise BadInput(f"--alibi-slopes: {slope} is not a positive number.")
    return slopes


def slopes_option(value: str) -> str:
    """The value of ``--alibi-slopes``, where a file is replaced by its numbers.

    A model that stores them does not need the file again.

    Raises:
        BadInput: there is no such file, or it is not text.
    """
    if value in KINDS or _is_number(value.partition(",")[0]):
        return value
    try:
        return ",".join(Path(value).read_text(encoding="utf-8").replace(",", " ").split())
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise BadInput(
            f"--alibi-slopes must be {', '.join(KINDS)} or a file of numbers; '{value}' cannot be "
            f"read ({reason})."
        ) from None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
