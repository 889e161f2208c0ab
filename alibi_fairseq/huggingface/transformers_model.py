"""Hugging Face model with the interface of an evaluated fairseq checkpoint.

Each window is computed separately: no keys or values are kept from one window to the next.

Shapes: B windows, T inputs of a window, S tokens it scores.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.utils import TRANSFORMERS_DYNAMIC_MODULE_NAME

from ..errors import UserInputError
from ..evaluation.checkpoint import LoadedModel
from ..evaluation.device import find_dtype
from ..evaluation.option_types import Precision
from ..evaluation.scoring import Scorer
from ..evaluation.sweep import WeightsIdentity
from ..positions.spec import MethodSpec
from ..results.series import Facts, Series
from ..results.training_settings import settings_of_weights
from .configuration_alibi_lm import AlibiLmConfig
from .model_folder import CONFIG_FILE, ModelFolder
from .output_layer import OutputLayer

#: Keys of configurations for the training length, the most specific first.
TRAIN_LENGTHS = (
    "train_length",
    "max_position_embeddings",
    "n_positions",
    "n_ctx",
    "max_seq_len",
    "seq_length",
    "context_length",
)
#: Keys for the training length that also limit the length of windows if there is no rotation.
MAX_LENGTHS = ("n_positions", "n_ctx", "max_seq_len")
#: Types of rotation whose frequencies do not depend on the number of inputs.
FIXED_ROTATIONS = {"default", "linear", "llama3", "yarn", "proportional"}


@dataclass(frozen=True)
class TransformersModel(LoadedModel):
    """Causal language model of transformers, in the attribute ``decoder``.

    Attributes:
        output_layer: output layer of the model.
        rotation_states: states of its rotary embeddings before any window.
        window_start: token ID that replaces the first input of every window, or None.
    """

    output_layer: OutputLayer
    rotation_states: RotationStates
    window_start: int | None

    def scorer(self) -> Scorer:
        """Return a function that scores windows, each separately."""

        def score(tokens: Tensor, targets: Tensor) -> Tensor:
            if self.window_start is not None:
                tokens = tokens.clone()
                tokens[:, 0] = self.window_start
            self.rotation_states.restore()
            hidden_states = self.output_layer.hidden_states(tokens, targets.shape[1])
            return self.output_layer.losses(hidden_states, targets)

        return score


class RotationStates:
    """State of a model's rotary embeddings before any window.

    Dynamic scaling keeps the frequencies of the longest window for later, shorter ones
    (``dynamic_rope_update`` of transformers), so that a loss would depend on the order of windows.
    Code in a folder can do the same in any module with a buffer that is not stored. In models of
    transformers, the other buffers are constant, and copies of masks can take 100 MB (GPT-Neo).
    """

    def __init__(self, model: nn.Module):
        own_code = has_own_code(model)
        self._states: list[tuple[nn.Module, dict, dict]] = []
        for module in model.modules():
            has_buffers = bool(module._non_persistent_buffers_set)
            if hasattr(module, "rope_type") or (own_code and has_buffers):
                attributes = _copy_tensors(vars(module))
                self._states.append((module, attributes, _copy_tensors(module._buffers)))

    def restore(self) -> None:
        """Set all rotary embeddings to their states before any window."""
        for module, attributes, buffers in self._states:
            vars(module).clear()
            vars(module).update(_copy_tensors(attributes))
            module._buffers = _copy_tensors(buffers)


def _copy_tensors(values: dict[str, Any]) -> dict[str, Any]:
    """Return a dictionary with copies of the tensors and the same other values."""
    return {
        name: value.clone() if isinstance(value, Tensor) else value
        for name, value in values.items()
    }


def load_transformers_model(
    folder: ModelFolder,
    precision: Precision,
    device: torch.device,
    longest: int,
    weights_sha256: str,
    bos_per_window: bool = False,
) -> TransformersModel:
    """Load the model of a folder.

    Args:
        folder: the folder.
        precision: type of weights and activations.
        device: device to compute on.
        longest: longest window, which determines the memory of eager attention.
        weights_sha256: hash of the weights, which stands for their training.
        bos_per_window: True to replace the first input of every window by the first input of the
            text.

    Raises:
        UserInputError: the weights do not match, or the model is not a causal language model.
    """
    dtype = find_dtype(precision)
    model = folder.load_model(dtype, device)
    config = model.config.get_text_config()
    rotation_states = RotationStates(model)
    width = config.hidden_size
    inner = getattr(config, "intermediate_size", None) or 4 * width
    bytes_per_input = (10 * width + 2 * inner) * dtype.itemsize
    if config._attn_implementation == "eager":
        # Scores, weights, and a bias or mask: one fp32 value per head and key in each.
        heads = getattr(config, "num_attention_heads", 1)
        bytes_per_input += 3 * 4 * heads * longest
    facts = Facts(
        architecture=type(model).__name__,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        layers=config.num_hidden_layers,
        width=width,
        vocabulary=config.vocab_size,
    )
    method = MethodSpec.plain(find_position_method(config, model))
    # An override cannot change how the model was trained.
    original_config = folder.original_config.get_text_config()
    trained_method = MethodSpec.plain(find_position_method(original_config, model))
    settings = settings_of_weights(trained_method, find_train_length(folder), weights_sha256)
    max_length = find_max_length(config, model)
    return TransformersModel(
        decoder=model,
        path=folder.path,
        weights=WeightsIdentity(
            Series(settings, facts=facts),
            seed=None,
            at=None,
            variant=folder.path.resolve().name,
        ),
        method=method,
        memory_length=0,
        max_length=max_length,
        shares_start=not (has_own_code(model) or depends_on_length(config)),
        bytes_per_input=bytes_per_input,
        output_layer=OutputLayer(model, max_length),
        rotation_states=rotation_states,
        window_start=folder.first_input if bos_per_window else None,
    )


def find_train_length(folder: ModelFolder) -> int:
    """Return the training length according to the configuration of a folder.

    An override cannot change it. It counts only if the configuration itself states none.

    Raises:
        UserInputError: the configuration does not state it.
    """
    for config in (folder.original_config, folder.config):
        text_config = config.get_text_config()
        for name in TRAIN_LENGTHS:
            value = getattr(text_config, name, None)
            if isinstance(value, int) and value > 0:
                return value
    raise UserInputError(
        f"{folder.path / CONFIG_FILE} does not state the training length, which results record. "
        "Pass it with --model-overrides '{\"max_position_embeddings\": 2048}'."
    )


def find_position_method(config: PreTrainedConfig, model: nn.Module) -> str:
    """Return the position method of a model, by the names of this package.

    A method that this package does not know is ``unknown``.
    """
    if isinstance(config, AlibiLmConfig):
        return config.position_method
    attention: Any = getattr(config, "attn_config", None)
    has_alibi = getattr(config, "alibi", False) or getattr(attention, "alibi", False)
    if has_alibi or config.model_type == "bloom":
        return "alibi"
    rotation = rotations(config)
    if rotation:
        if all(part.get("partial_rotary_factor") == 0 for part in rotation):
            return "none"
        return "rotary"
    if getattr(config, "rotary_dim", None):
        return "rotary"
    names = [type(module).__name__.lower() for module in model.modules()]
    if any("sinusoidal" in name for name in names):
        return "sinusoidal"
    if find_position_embeddings(model):
        return "learned"
    return "unknown"


def rotations(config: PreTrainedConfig) -> list[dict]:
    """Return the parameters of rotary embeddings, one entry per type of layer."""
    parameters = getattr(config, "rope_parameters", None) or {}
    by_layer_type = [value for value in parameters.values() if isinstance(value, dict)]
    if by_layer_type or not parameters:
        return by_layer_type
    return [parameters]


def depends_on_length(config: PreTrainedConfig) -> bool:
    """Return True if the score of a token may depend on the number of inputs after it."""
    if isinstance(config, AlibiLmConfig):
        return config.alibi_scale is None
    return any(part.get("rope_type") not in FIXED_ROTATIONS for part in rotations(config))


def has_own_code(model: nn.Module) -> bool:
    """Return True if the code of a model comes from its folder, not from an installed package."""
    return type(model).__module__.startswith(TRANSFORMERS_DYNAMIC_MODULE_NAME)


def find_max_length(config: PreTrainedConfig, model: nn.Module) -> int:
    """Return the longest window that the positions of a model allow."""
    limits = []
    for table in find_position_embeddings(model):
        unused_rows = getattr(table, "offset", 0)  # rows before the first position, as in OPT
        limits.append(table.num_embeddings - unused_rows)
    if isinstance(config, AlibiLmConfig):
        if config.position_method == "learned" and not config.clamp_learned_positions:
            limits.append(config.train_length)
    elif not rotations(config):
        limits += [getattr(config, name) for name in MAX_LENGTHS if getattr(config, name, None)]
    return min(limits, default=sys.maxsize)


def find_position_embeddings(model: nn.Module) -> list[nn.Embedding]:
    """Return the embeddings of positions, recognized by name (``wpe`` in GPT-2).

    Embeddings of a vision tower do not limit the text.
    """
    decoder = model
    if isinstance(model, PreTrainedModel):
        decoder = model.get_decoder()
    tables = []
    for path, module in decoder.named_modules():
        name = path.rpartition(".")[2]
        if isinstance(module, nn.Embedding) and ("pos" in name or name == "wpe"):
            tables.append(module)
    return tables
