"""Different position methods in different layers.

``--position-method rotary,rotary,rotary,none`` gives each layer one method. The list is repeated
over the layers. Examples:

- rotation in three of four layers and no positions in the fourth (Yang et al. 2025, "RNoPE-SWA",
  https://arxiv.org/abs/2501.18795, which adds an attention window to the rotated layers)
- any other list of methods that act on queries, keys, or scores
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from torch import nn

from ..errors import UserInputError
from .base import PositionConfig, PositionMethod


def cycle_over_layers(flag: str, given: str, layers: int) -> list[str]:
    """Return one value per layer from values separated by commas.

    Raises:
        UserInputError: if there are more values than layers, or one is empty.
    """
    values = [value.strip() for value in given.split(",")]
    if len(values) > layers:
        raise UserInputError(
            f"{flag} {given} names {len(values)} layers, but the model has {layers}. "
            "Drop some values."
        )
    if "" in values:
        raise UserInputError(
            f"{flag} '{given}' has an empty value. Pass one value per layer, such as A,A,B."
        )
    return [values[layer % len(values)] for layer in range(layers)]


def name_layers(labels: Sequence[str]) -> str:
    """Return a short name of one label per layer, such as ``rotary×3+none``.

    The shortest list that gives the labels when it is repeated is named, so a list of one label is
    that label.
    """
    for period in range(1, len(labels) + 1):
        if all(label == labels[layer % period] for layer, label in enumerate(labels)):
            break
    parts = []
    for label, run in groupby(labels[:period]):
        count = len(list(run))
        parts.append(label if count == 1 else f"{label}×{count}")
    return "+".join(parts)


def _module_key(name: str) -> str:
    """Return the key of a method in ``nn.ModuleDict``, which has neither dots nor attribute names.

    No name of a method has a colon.
    """
    key = name.replace(".", ":")
    if hasattr(nn.ModuleDict(), key):
        key += ":"
    return key


class LayerPattern(PositionMethod):
    """One position method per layer.

    Args:
        config: configuration of the whole model.
        names: name of the method of each layer.
        methods: methods by name, each built for the number of its layers.

    Raises:
        UserInputError: a method acts on all layers at once, through embeddings or a memory.
    """

    def __init__(
        self, config: PositionConfig, names: list[str], methods: dict[str, PositionMethod]
    ):
        super().__init__(config)
        for name, method in methods.items():
            adds_embeddings = type(method).embed is not PositionMethod.embed
            if adds_embeddings or method.memory_length > 0:
                raise UserInputError(
                    f"Position method '{name}' acts on all layers at once. Choose another one for "
                    "--position-method with several values, or pass it alone."
                )
        self.names = names
        self.methods = nn.ModuleDict({_module_key(name): methods[name] for name in methods})
        self.depends_on_key_count = any(method.depends_on_key_count for method in methods.values())

    def layer_method(self, layer: int) -> tuple[PositionMethod, int]:
        name = self.names[layer]
        method = self.methods[_module_key(name)]
        return method, self.names[:layer].count(name)  # type: ignore[return-value]
