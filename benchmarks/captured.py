"""Queries, keys and values of every layer of a trained model, on text it was not trained on."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import torch
from torch import Tensor

from alibi_fairseq.evaluation.checkpoint import load_checkpoint
from alibi_fairseq.evaluation.data import load_dictionary, load_split
from alibi_fairseq.models import self_attention


def capture(path: Path, data: Path, subset: str, length: int) -> tuple[list, object]:
    """Run a checkpoint over the first tokens of a split.

    Args:
        path: a checkpoint of this project's models.
        data: fairseq's binary data folder.
        length: number of tokens; the model may have been trained on fewer.

    Returns:
        One (q, k, v) per layer, each (1, H, T, D) with rotations applied; and the bias of the
        method.
    """
    dictionary = load_dictionary(data)
    loaded = load_checkpoint(path, data, dictionary, torch.device("cpu"))
    inputs = torch.from_numpy(load_split(data, subset, dictionary).inputs(length))[:length]
    layers: list[tuple[Tensor, Tensor, Tensor]] = []
    biases = []
    attend = self_attention.attend

    def recording(q, k, v, mask, **options):
        layers.append((q.detach(), k.detach(), v.detach()))
        biases.append(mask.bias)
        return attend(q, k, v, mask, **options)

    with mock.patch.object(self_attention, "attend", recording), torch.no_grad():
        loaded.decoder.extract_features(inputs[None].long())
    return layers, biases[0]
