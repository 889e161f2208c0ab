"""A decoder as a model of transformers: natively where that is exact, else by our own files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForCausalLM, PreTrainedModel

from ..errors import BadInput
from . import own
from .architectures import NATIVE
from .description import Description
from .modeling_alibi_lm import AlibiLmForCausalLM

#: Largest difference of scores that rounding explains.
TOLERANCE = 1e-3
_TOKENS = 256  # to compare on


@dataclass(frozen=True)
class Converted:
    """Attributes:
    model: in evaluation mode, in fp32 on the CPU.
    architecture: as people write it.
    reason: one sentence on why that one.
    difference: between the scores of both on random tokens, the largest.
    """

    model: PreTrainedModel
    architecture: str
    reason: str
    difference: float


def convert(decoder: nn.Module, description: Description) -> Converted:
    """The model of transformers that computes the same.

    Raises:
        BadInput: there is none.
    """
    native = NATIVE.get(description.position_method)
    needed = list(native.needed(description)) if native else []
    weights = decoder.state_dict()
    if native and not needed:
        config = native.config(description)
        model = AutoModelForCausalLM.from_config(config)
        converted = native.exported(description, weights)
        name, reason = native.name, f"{native.name} computes the same, without code of ours."
    else:
        model = AlibiLmForCausalLM(own.config(description))
        converted = own.exported(decoder, weights)
        name = own.NAME
        reason = f"No architecture of transformers has '{description.position_method}' positions."
        if native:
            reason = (
                f"{native.name} would have fit a model trained with these options: "
                f"{', '.join(needed)}."
            )
    load(model, converted)
    difference = compare(decoder, model, description.train_length)
    if not difference <= TOLERANCE:
        raise BadInput(
            f"The exported model ({name}) gives other scores than the checkpoint (difference "
            f"{difference:.1e}): it was trained with an option that no exported form holds."
        )
    return Converted(model, name, reason, difference)


def load(model: PreTrainedModel, weights: dict[str, torch.Tensor]) -> None:
    """Fill a model; every weight of it is given, and nothing else."""
    weights = {name: tensor.detach().clone() for name, tensor in weights.items()}
    model.load_state_dict(weights, strict=True)
    model.eval()


@torch.no_grad()
def compare(decoder: Any, model: PreTrainedModel, train_length: int) -> float:
    """Largest difference of log-probabilities between a decoder and its converted form."""
    first, words = decoder.dictionary.nspecial, len(decoder.dictionary)
    numbers = torch.Generator().manual_seed(1)
    tokens = torch.randint(first, words, (2, min(_TOKENS, train_length)), generator=numbers)
    ours = decoder.get_normalized_probs(decoder(tokens), log_probs=True)
    theirs = model(tokens).logits.log_softmax(-1)
    return (ours - theirs).abs().max().item()
