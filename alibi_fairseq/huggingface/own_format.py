"""Import of models in our own format, ``alibi_lm``, which :mod:`.export` wrote."""

from __future__ import annotations

import re
from typing import Any

from transformers import PreTrainedConfig

from ..errors import UserInputError
from .architectures import Architecture, Weights
from .configuration_alibi_lm import AlibiLmConfig

#: Patterns of weight names in the modeling files, and our decoder's names: the opposite of
#: :data:`.conversion.RENAMED`, without adaptive inputs.
RENAMED = (
    (r"^model\.embed_tokens\.words\.", "embed_tokens."),
    (r"^model\.embed_tokens\.project\.", "project_in_dim."),
    (r"^model\.positions\.", "embed_positions."),
    (r"^model\.", ""),
    (r"^lm_head\.project\.", "project_out_dim."),
    (r"^lm_head\.words\.", "output_projection."),
)


class AlibiLm(Architecture):
    """Our own format, whose configuration is the description."""

    name = "alibi_lm"
    model_type = AlibiLmConfig.model_type

    def describe_config(self, config: PreTrainedConfig) -> AlibiLmConfig:
        assert isinstance(config, AlibiLmConfig), "the only configuration of this type"
        if config.embedding_bands or config.softmax_bands or config.memory_length:
            raise UserInputError(
                "Cannot import an alibi_lm model with memory, adaptive input, or an adaptive "
                "softmax. Use the checkpoint from which it was exported."
            )
        return config

    def import_weights(self, description: AlibiLmConfig, weights: Weights) -> Weights:
        ours = {}
        for name, weight in weights.items():
            for pattern, new in RENAMED:
                renamed, matches = re.subn(pattern, new, name)
                if matches:
                    ours[renamed] = weight
                    break
        return ours


def own_options(description: AlibiLmConfig) -> dict[str, Any]:
    """Return the options that only models in our own format have, without default values."""
    defaults = AlibiLmConfig()
    options: dict[str, Any] = {}
    if description.alibi_scale is None:
        options["alibi_scale"] = "dynamic"
    elif description.alibi_scale != defaults.alibi_scale:
        options["alibi_scale"] = str(description.alibi_scale)
    if description.alibi_bias_max != defaults.alibi_bias_max:
        options["alibi_bias_max"] = description.alibi_bias_max
    if description.clamp_learned_positions:
        options["clamp_learned_positions"] = True
    if description.sliding_window:
        options["attention_window"] = str(description.sliding_window)
    return options
