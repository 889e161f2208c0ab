"""Accuracy of a model on a probe, by length of the sequence and depth of the repeated block.

Test sequences are drawn with a seed of their own, the same for all models. A symbol is correct if
the model ranks it first, given the tokens before it.

Shapes: B sequences, T tokens of a sequence, n predicted symbols of a sequence, C model width.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from ..data import probes
from ..data.probe_data import load_probe
from ..results.case import Case
from ..results.data_folder import DataFolder
from ..results.values import Cost, ProbeValues, TextSummary
from .checkpoint import LoadedModel
from .config import SweepConfig
from .evaluator import Evaluator, Measured
from .scoring import not_finite
from .sweep import Sweep

#: Random seed of the test sequences.
SEED = 20_220_425


class ProbeEvaluator(Evaluator):
    """Evaluator of a probe: the accuracy by length and depth.

    Strides, splits, and scored ranges of the configuration do not apply.

    Raises:
        UserInputError: a length is too small for the probe.
    """

    def __init__(self, config: SweepConfig, folder: DataFolder):
        self._probe, self._marker, self._running_text = load_probe(folder.path)
        for length in config.lengths:
            self._probe.check(length)
        sweep = Sweep.of_data(config, folder, self._probe.name)
        super().__init__(sweep, TextSummary())

    def num_inputs(self, case: Case) -> int:
        return probes.SEQUENCES_PER_CASE * case.length

    def measure(
        self, model: LoadedModel, case: Case, progress: Callable[[int], object]
    ) -> Measured:
        """Measure the accuracy by drawing test sequences.

        Raises:
            UserInputError: the length is too large for the text, or a score is not finite.
        """
        assert case.depth is not None, "it is the case of a probe"
        length = case.length
        depth = case.depth
        rng = np.random.default_rng([SEED, length, round(100 * depth)])
        sequences = self._probe.sequences(
            rng, self._marker, self._running_text, probes.SEQUENCES_PER_CASE, length, depth
        )
        tokens = torch.from_numpy(sequences).to(self.device)
        positions = self._probe.answer_positions(length)
        is_correct = correct_symbols(model, tokens, positions, self.sweep.config.memory_budget)
        progress(sequences.size)
        values = ProbeValues(
            accuracy=is_correct.double().mean().item(),
            gap=self._probe.gap(length, depth),
            trials=len(sequences),
            chance=self._probe.chance,
        )
        return Measured(values, Cost(device=self.device.type))


@torch.no_grad()
def correct_symbols(
    model: LoadedModel, sequences: Tensor, positions: np.ndarray, budget: int | None = None
) -> Tensor:
    """Determine which symbols the model ranks first.

    Args:
        model: the model.
        sequences: (B, T) tokens.
        positions: positions of the symbols in a sequence, ascending, (n,). The last is at most
            T - 2, since ``</s>`` ends a sequence.
        budget: bytes that a forward pass may take, or None for the default of the device.

    Returns:
        (B, n) bool on the CPU, True for each symbol that is ranked first.

    Raises:
        UserInputError: the scores of a symbol cannot be ranked.
    """
    decoder = model.decoder
    # Number of inputs from the one that predicts the first symbol on.
    last = sequences.shape[1] - 1 - int(positions[0])
    batch_size = model.windows_per_batch(sequences.shape[1], sequences.device, budget)
    is_correct = []
    for tokens in sequences.split(batch_size):
        # As in training, </s> comes first. The last symbol is not an input: it predicts only </s>.
        inputs = tokens.roll(1, dims=1)[:, :-1]
        features, _ = model.features(inputs, last)
        features = features[:, positions - positions[0]]  # (b, n, C)
        scores = decoder.get_normalized_probs((decoder.output_layer(features), None), True)
        # Excluded symbols have a score of -inf.
        has_ranking = scores.isfinite().any(dim=-1) & ~scores.isnan().any(dim=-1)
        if not has_ranking.all():
            raise not_finite(f"some sequence of {sequences.shape[1]} tokens")
        is_correct.append(scores.argmax(dim=-1) == tokens[:, positions])
    return torch.cat(is_correct).cpu()
