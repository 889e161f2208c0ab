"""How much of a string a model repeats, by length of the sequence and depth of the string.

Test sequences are drawn from a seed of their own, the same for all models. A symbol counts as right if the
model ranks it first, given what stands before it.

Shapes: B sequences, T tokens of a sequence, n symbols of a string, C model width.
"""

from __future__ import annotations

import time

import numpy as np
import torch
from torch import Tensor

from ..data import probes
from ..data.parallel import progress
from ..errors import BadInput
from ..files import sha256_file
from ..results.provenance import collect_provenance
from ..results.schema import new_document, save_document
from .checkpoint import LoadedModel
from .sweep import Sweep

#: Of test sequences; those of training are drawn from others.
SEED = 20_220_425


def run_probe(sweep: Sweep) -> list[dict]:
    """Measure checkpoints and write a results document.

    Args:
        sweep: its lengths are those of test sequences; strides and splits have no meaning here.

    Raises:
        BadInput: a length is beyond the text's reach, or too small for the string.
    """
    if sweep.shard:
        raise BadInput("--shard: a probe is measured in one piece.")
    probe, first, text = probes.load(sweep.data)
    for length in sweep.lengths:
        probe.check(length)
    cases = [(length, depth) for length in sweep.lengths for depth in probes.DEPTHS]
    kept = ("precision", "model_overrides")
    settings = {key: value for key, value in sweep.settings().items() if key in kept}
    began, cells = time.monotonic(), []
    for path in sweep.checkpoints:
        model = sweep.load(path)
        facts = {**model.facts, "checkpoint_sha256": sha256_file(path), **settings}
        with progress(len(cases), "probing", "case", unit_scale=False) as bar:
            for length, depth in cases:
                chance = np.random.default_rng([SEED, length, round(100 * depth)])
                rows = probe.sequences(chance, first, text, probes.TRIALS, length, depth)
                right = correct(model, torch.from_numpy(rows).to(sweep.device), probe.size)
                accuracy = right.double().mean().item()
                case = {"length": length, "depth": depth, "gap": probe.gap(length, depth)}
                measured = {"trials": len(rows), "accuracy": accuracy, "chance": probe.chance}
                cells.append({**facts, **case, **measured})
                bar.update()
    provenance = collect_provenance(
        seconds=time.monotonic() - began,
        precision=sweep.precision,
        data=sweep.data,
        subsets=["train"],
    )
    save_document(new_document("probe", probe.name, provenance, cells), sweep.out)
    return cells


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
