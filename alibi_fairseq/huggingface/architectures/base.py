"""What the native architectures have in common.

Shapes: C model width, H heads, D head size.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedConfig

from ...errors import BadInput
from ..description import ACTIVATIONS, Description

#: Numbers of fairseq's special symbols; its language models start a text with </s>.
SPECIAL = {"bos_token_id": 2, "pad_token_id": 1, "eos_token_id": 2}

Weights = dict[str, Tensor]


class Architecture:
    """One architecture of transformers.

    Attributes:
        name: as people write it.
        model_type: as ``config.json`` has it.
        prefix: of the transformer's weights in a causal language model.
        names: our name of each module and theirs; ``{}`` stands for the number of a layer.
        fused: their module of queries, keys and values, where they are one.
        scales: it multiplies embeddings by √C itself, as fairseq does.
    """

    name: str
    model_type: str
    prefix: str
    names: dict[str, str]
    fused: str | None = None
    scales = False

    def needed(self, model: Description) -> Iterator[str]:
        """The options of training that would have made a model fit; none when it fits."""
        raise NotImplementedError

    def config(self, model: Description) -> PreTrainedConfig:
        """The configuration of a model that fits."""
        raise NotImplementedError

    def options(self, config: PreTrainedConfig) -> dict[str, Any]:
        """fairseq's options for a model of that configuration.

        Raises:
            BadInput: our decoder has no such model.
        """
        raise NotImplementedError

    def exported(self, model: Description, weights: Weights) -> Weights:
        """Weights by transformers' names, from those of our decoder."""
        result = renamed(weights, self.names, model.layers)
        if not self.scales:
            words = weights["embed_tokens.weight"] * model.embedding_scale
            result[f"{self.names['embed_tokens']}.weight"] = words
        for name, prefix, kind in self._fused(model.layers):
            parts = [weights[f"{prefix}.{part}_proj.{kind}"] for part in "qkv"]
            by_head = torch.stack([part.unflatten(0, (model.heads, -1)) for part in parts], 1)
            result[name] = by_head.flatten(0, 2)  # q, k and v of each head beneath each other
        result = {self.prefix + name: tensor for name, tensor in result.items()}
        return {**result, "lm_head.weight": weights["output_projection.weight"]}

    def imported(self, layers: int, heads: int, weights: Weights) -> Weights:
        """Weights by our decoder's names, from those without ``prefix``."""
        result = renamed(weights, {new: old for old, new in self.names.items()}, layers)
        for name, prefix, kind in self._fused(layers):
            by_head = weights[name].unflatten(0, (heads, 3, -1))  # (H, 3, D, …)
            for index, part in enumerate("qkv"):
                tensor = by_head[:, index].flatten(0, 1).contiguous()
                result[f"{prefix}.{part}_proj.{kind}"] = tensor
        return result

    def _fused(self, layers: int) -> Iterator[tuple[str, str, str]]:
        """Their tensors of queries, keys and values, with our module and the kind of tensor."""
        for layer in range(layers if self.fused else 0):
            for kind in ("weight", "bias"):
                name = f"{str(self.fused).format(layer)}.{kind}"
                yield name, f"layers.{layer}.self_attn", kind


def plain_vocabulary(model: Description) -> Iterator[str]:
    """What has to change for plain input and output layers of the model's width."""
    if model.adaptive_input:
        yield "without --adaptive-input"
    if model.adaptive_softmax:
        yield "without --adaptive-softmax-cutoff"


def equal_widths(model: Description) -> Iterator[str]:
    """What has to change for embeddings as wide as the model."""
    yield from plain_vocabulary(model)
    if not model.adaptive_input and model.input_width != model.width:
        yield f"--decoder-input-dim {model.width}"
    if not model.adaptive_softmax and model.output_width != model.width:
        yield f"--decoder-output-dim {model.width}"


def norms(model: Description, embedding: bool = False) -> Iterator[str]:
    """What has to change for a layer norm in front of each sublayer and one at the end."""
    if not model.normalize_before:
        yield "--decoder-normalize-before"
    elif not model.final_norm:
        yield "without --no-decoder-final-norm"
    if model.embedding_norm and not embedding:
        yield "without --layernorm-embedding"
    if embedding and not model.embedding_norm:
        yield "--layernorm-embedding"


def without_options(model: Description) -> Iterator[str]:
    """What has to change for a position method without options of its own."""
    for option in model.options:
        yield "without --" + option.replace("_", "-")


def is_tied(model: Description) -> bool:
    """Whether input and output words stay one matrix when the factor is multiplied in."""
    return model.tied and model.embedding_scale == 1


#: fairseq's activation functions by transformers' names.
FAIRSEQ_ACTIVATIONS = {
    "gelu_new": "gelu_accurate",
    **{theirs: ours for ours, theirs in ACTIVATIONS.items() if ours != "gelu_fast"},
}


def fairseq_activation(name: str, activation: str) -> str:
    """fairseq's name of an activation function.

    Raises:
        BadInput: fairseq has no such function.
    """
    if activation not in FAIRSEQ_ACTIVATIONS:
        raise BadInput(
            f"This {name} model uses the activation function {activation}, which fairseq does not "
            f"have (it has {', '.join(sorted(set(FAIRSEQ_ACTIVATIONS.values())))})."
        )
    return FAIRSEQ_ACTIVATIONS[activation]


def renamed(weights: Weights, names: dict[str, str], layers: int) -> Weights:
    """The weights and biases of some modules under other names.

    Args:
        names: old name of each module and its new one; ``{}`` stands for the number of a layer.
    """
    result = {}
    for old, new in names.items():
        for layer in range(layers if "{}" in old else 1):
            for kind in ("weight", "bias"):
                name = f"{old.format(layer)}.{kind}"
                if name in weights:
                    result[f"{new.format(layer)}.{kind}"] = weights[name]
    return result
