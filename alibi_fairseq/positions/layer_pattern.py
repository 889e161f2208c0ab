"""Different position methods in different layers.

``--position-method rotary,rotary,rotary,none`` gives each layer one method. The list is repeated
over the layers. Examples:

- rotation in three of four layers and no positions in the fourth (Yang et al. 2025, "RNoPE-SWA",
  https://arxiv.org/abs/2501.18795, which adds an attention window to the rotated layers)
- any other list of methods that act on queries, keys, or scores
"""

from __future__ import annotations

from torch import nn

from ..errors import UserInputError
from .base import PositionConfig, PositionMethod


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
