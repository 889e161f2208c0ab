"""How much of a string a model repeats, by length of the sequence and depth of the string.

Test sequences are drawn from a seed of their own, the same for all models. A symbol counts as right if the
model ranks it first, given what stands before it.

Shapes: B sequences, T tokens of a sequence, n symbols of a string, C model width.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ..data import probes
from .checkpoint import LoadedModel

if TYPE_CHECKING:
    from .sweep import SweepConfig

#: Of test sequences; those of training are drawn from others.
SEED = 20_220_425


class ProbeCases:
    """The measurements of a sweep on the data of a probe.

    Lengths are those of test sequences; strides and splits have no meaning here.

    Raises:
        UserInputError: a length is beyond the text's reach, or too small for the string.
    """

    kind, subsets = "probe", ("train",)

    def __init__(self, sweep: SweepConfig):
        self.device = sweep.device
        self.probe, self.first, self.text = probes.load(sweep.data)
        self.corpus = self.probe.name
        for length in sweep.lengths:
            self.probe.check(length)
        cases = dict.fromkeys(product(sweep.lengths, probes.DEPTHS))
        self.cases = [{"length": length, "depth": depth} for length, depth in cases]

    def inputs(self, case: dict) -> int:
        return probes.SEQUENCES_PER_CASE * case["length"]

    def measure(
        self,
        model: LoadedModel,
        case: dict,
        earlier: list[dict],
        progress: Callable[[int], object],
    ) -> dict:
        """Measure a case. No ``earlier`` cell has the same sequences."""
        length, depth = case["length"], case["depth"]
        chance = np.random.default_rng([SEED, length, round(100 * depth)])
        rows = self.probe.sequences(
            chance, self.first, self.text, probes.SEQUENCES_PER_CASE, length, depth
        )
        right = correct(model, torch.from_numpy(rows).to(self.device), self.probe.size)
        progress(rows.size)
        return {
            "gap": self.probe.gap(length, depth),
            "trials": len(rows),
            "accuracy": right.double().mean().item(),
            "chance": self.probe.chance,
        }


@torch.no_grad()
def correct(model: LoadedModel, rows: Tensor, size: int) -> Tensor:
    """Whether each symbol of the strings at the end is the model's first choice.

    Args:
        rows: (B, T) sequences that end with a string and ``</s>``.
        size: symbols n of a string.

    Returns:
        (B, n) bool.
    """
    length, device, decoder, found = rows.shape[1], rows.device, model.decoder, []
    for tokens in rows.split(model.windows_per_batch(length, device, budget=None)):
        # As in training </s> comes first; the last input is the last symbol but one.
        inputs = tokens.roll(1, dims=1)[:, :-1]
        features, _ = decoder.extract_features(inputs, last=size)  # (b, n, C)
        scores = decoder.get_normalized_probs((decoder.output_layer(features), None), True)
        found.append(scores.argmax(dim=-1) == tokens[:, -1 - size : -1])
    return torch.cat(found).cpu()
