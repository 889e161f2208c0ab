"""How much of a string a model repeats, by length of the sequence and depth of the string.

Test sequences are drawn anew from a seed of their own, the same for all models. A symbol counts as right
if the model ranks it first, given the sequence before it.

Shapes: B sequences, T tokens of a sequence, n symbols of a string.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from ..data import probes
from ..data.parallel import progress
from ..files import sha256_file
from ..results.provenance import collect_provenance
from ..results.schema import new_document, save_document
from .checkpoint import LoadedModel, load_checkpoint
from .data import load_dictionary
from .memory_usage import windows_per_batch

#: Of test sequences; those of training are drawn from others.
SEED = 20_220_425


def run_probe(
    data: Path,
    checkpoint: Path,
    lengths: Sequence[int],
    out: Path,
    device: torch.device,
    overrides: dict | None = None,
    trials: int = probes.TRIALS,
) -> None:
    """Measure a checkpoint and write a results document.

    Raises:
        BadInput: a length is out of the model's or the text's reach, or too small for the string.
    """
    began = time.monotonic()
    probe, first, text = probes.load(data)
    model = load_checkpoint(checkpoint, data, load_dictionary(data), device, overrides=overrides)
    for length in lengths:
        probe.check(length)
    facts = {**model.facts, "checkpoint_sha256": sha256_file(checkpoint), "device": device.type}
    if overrides:
        facts["model_overrides"] = json.dumps(overrides, sort_keys=True)
    cells = []
    with progress(len(lengths) * len(probes.DEPTHS), "probing", "cell", unit_scale=False) as bar:
        for length in lengths:
            for depth in probes.DEPTHS:
                chance = np.random.default_rng([SEED, length, round(100 * depth)])
                rows = probe.sequences(chance, first, text, trials, length, depth)
                right = torch.cat(list(correct(model, rows, probe.size, device)))  # (trials, n)
                cells.append(
                    {
                        **facts,
                        "length": length,
                        "depth": depth,
                        "gap": probe.gap(length, depth),
                        "trials": trials,
                        "accuracy": right.double().mean().item(),
                        "whole": right.all(dim=1).double().mean().item(),
                        "chance": probe.chance,
                    }
                )
                bar.update()
    provenance = collect_provenance(
        seconds=time.monotonic() - began, seed=facts["seed"], data=data, subsets=["train"]
    )
    save_document(new_document("probe", probe.name, provenance, cells), out)


@torch.no_grad()
def correct(
    model: LoadedModel, rows: np.ndarray, size: int, device: torch.device
) -> Iterator[torch.Tensor]:
    """Whether each symbol of the repeated strings is the model's first choice, batch by batch.

    Args:
        rows: (B, T) sequences that end with a string and ``</s>``.
        size: symbols n of a string.

    Yields:
        (b, n) bool, b sequences at a time.
    """
    length, decoder = rows.shape[1], model.decoder
    batch = windows_per_batch(length, model.bytes_per_input, device, None)
    for tokens in torch.from_numpy(rows).to(device).split(batch):
        # As in training </s> comes first; the last input is the last symbol but one.
        inputs = tokens.roll(1, dims=1)[:, :-1]  # (b, T - 1)
        features, _ = decoder.extract_features(inputs, last=size)  # (b, n, C)
        scores = decoder.get_normalized_probs((decoder.output_layer(features), None), True)
        yield (scores.argmax(dim=-1) == tokens[:, -1 - size : -1]).cpu()
