"""Accuracy of a model on a probe, by length of the sequence and depth of the string.

Test sequences are drawn with a separate seed, the same for all models. A symbol is correct if the
model ranks it first, given the tokens before it.

Shapes: B sequences, T tokens of a sequence, n symbols of a string, C model width.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import torch
from torch import Tensor

from ..data import probes
from ..results.data_folder import DataFolder
from .checkpoint import LoadedModel
from .config import SweepConfig, find_device

#: Random seed of the test sequences.
SEED = 20_220_425


class ProbeCases:
    """Measurements of a sweep on a probe: the accuracy at a length and depth.

    Strides, splits, and scored ranges of the configuration do not apply.

    Attributes:
        kind: kind of the results file.
        subsets: splits whose hash the results file records.
        corpus: name of the corpus in the results file.
        cases: length and depth of each measurement, by their keys in result records.

    Raises:
        UserInputError: a length is too small for the string, or too large for the text.
    """

    kind = "probe"
    subsets = ("train",)

    def __init__(self, config: SweepConfig, folder: DataFolder):
        self._device = find_device(config.device)
        self._probe, self._first, self._text = probes.load(folder.path)
        self.corpus = self._probe.name
        for length in config.lengths:
            self._probe.check(length)
        self.cases: list[dict] = []
        for length, depth in product(dict.fromkeys(config.lengths), probes.DEPTHS):
            self.cases.append({"length": length, "depth": depth})

    def inputs(self, case: dict) -> int:
        """Return the number of inputs of a case, for the progress bar."""
        return probes.SEQUENCES_PER_CASE * case["length"]

    def measure(
        self,
        model: LoadedModel,
        case: dict,
        earlier: list[dict],
        progress: Callable[[int], object],
    ) -> dict:
        """Measure a case. No ``earlier`` record has the same sequences.

        Returns:
            Keys of the result record: ``gap, trials, accuracy, chance``.
        """
        length = case["length"]
        depth = case["depth"]
        rng = np.random.default_rng([SEED, length, round(100 * depth)])
        sequences = self._probe.sequences(
            rng, self._first, self._text, probes.SEQUENCES_PER_CASE, length, depth
        )
        tokens = torch.from_numpy(sequences).to(self._device)
        is_correct = correct_symbols(model, tokens, self._probe.size)
        progress(sequences.size)
        return {
            "gap": self._probe.gap(length, depth),
            "trials": len(sequences),
            "accuracy": is_correct.double().mean().item(),
            "chance": self._probe.chance,
        }


@torch.no_grad()
def correct_symbols(model: LoadedModel, sequences: Tensor, size: int) -> Tensor:
    """Return True for each symbol of the final strings that the model ranks first.

    Args:
        model: the model.
        sequences: (B, T) tokens, each row ends with a string and ``</s>``.
        size: symbols n of a string.

    Returns:
        (B, n) bool on the CPU.
    """
    decoder = model.decoder
    batch_size = model.windows_per_batch(sequences.shape[1], sequences.device, budget=None)
    parts = []
    for tokens in sequences.split(batch_size):
        # As in training, </s> comes first. The last input is the last symbol but one.
        inputs = tokens.roll(1, dims=1)[:, :-1]
        features, _ = decoder.extract_features(inputs, last=size)  # (b, n, C)
        scores = decoder.get_normalized_probs((decoder.output_layer(features), None), True)
        parts.append(scores.argmax(dim=-1) == tokens[:, -1 - size : -1])
    return torch.cat(parts).cpu()
