"""Loading of a checkpoint through fairseq, and scoring with its model.

Shapes: B windows, T inputs of a window, S tokens it scores, C model width.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from fairseq import checkpoint_utils
from fairseq.utils import safe_getattr
from torch import Tensor
from torch.nn.functional import cross_entropy

from ..errors import UserInputError
from ..files import sha256_file
from ..models.decoder import AlibiDecoder, State
from ..models.description import describe_model, recorded_train_length
from ..plugin.chunked_losses import (
    adaptive_cross_entropy,
    excluded_symbols,
    find_clusters,
    has_plain_output,
)
from ..plugin.linear_cross_entropy import linear_cross_entropy
from ..plugin.loading import check_ties
from ..positions import MethodSpec
from ..positions.learned import Learned
from ..positions.plugin_sources import plugin_sha256
from ..results.data_hashes import check_dictionary
from ..results.file import load_training
from ..results.file_names import BEST_CHECKPOINT
from ..results.result import Result
from ..results.series import SERIES_KEY, Series, read_series
from ..results.training_settings import settings_of_weights
from .device import find_dtype
from .option_types import Precision
from .overrides import apply_overrides
from .scoring import Scorer
from .sweep import WeightsIdentity
from .windows import Window, make_batches, share_start

logger = logging.getLogger(__name__)

#: Memory budget of a forward pass on the CPU, in bytes.
CPU_BUDGET = 2 * 10**9
#: Inputs per batch beyond which throughput no longer improves.
ENOUGH_INPUTS = {"cpu": 4096, "cuda": 131072}


@dataclass(frozen=True)
class LoadedModel:
    """A model in evaluation mode and its metadata.

    Attributes:
        decoder: the fairseq decoder, on its device and in its precision.
        path: path of the checkpoint or of the folder.
        weights: identity of its weights, and how they were trained.
        method: position methods of the layers, with overridden options.
        memory_length: most inputs that the model remembers from the windows before; 0 without a
            memory.
        max_length: longest window the model takes.
        shares_start: True if one pass may score all windows at the start of a span, because no
            score depends on the number of later tokens.
        bytes_per_input: estimated memory per input of a forward pass.
    """

    decoder: Any
    path: Path
    weights: WeightsIdentity
    method: MethodSpec
    memory_length: int
    max_length: int
    shares_start: bool
    bytes_per_input: int

    def windows_per_batch(self, length: int, device: torch.device, budget: int | None) -> int:
        """Return the number of windows to compute at once.

        It is 1 for a model with a memory, since each window hands its state to the next.

        Args:
            length: inputs of a window.
            device: device of the model.
            budget: bytes that a forward pass may take, or None for 2 GB on a CPU and half of the
                total memory of a GPU. The free memory does not count, so that identical machines
                form identical batches.
        """
        if self.memory_length:
            return 1
        if budget is None:
            budget = CPU_BUDGET
            if device.type == "cuda":
                budget = torch.cuda.get_device_properties(device).total_memory // 2
        inputs_in_budget = budget // self.bytes_per_input
        inputs = min(ENOUGH_INPUTS[device.type], inputs_in_budget)
        return max(1, inputs // length)

    def make_batches(self, windows: list[Window], batch_size: int) -> list[list[Window]]:
        """Return the batches of the windows of a split.

        Windows at the start of a span share one pass, if their scores allow it.
        """
        passes = share_start(windows) if self.shares_start else windows
        return make_batches(passes, batch_size)

    def scorer(self) -> Scorer:
        """Return a scorer for the windows of one split, which hands a state from each to the next.

        A model with a memory must score them in order.
        """
        state: State | None = None

        def score(tokens: Tensor, targets: Tensor) -> Tensor:
            nonlocal state
            features, state = self.features(tokens, targets.shape[1], state)
            return token_losses(self.decoder, features, targets)

        return score

    def features(
        self, tokens: Tensor, last: int, state: State | None = None
    ) -> tuple[Tensor, State | None]:
        """Return the features of the last inputs, (B, last, C), and the state for the next window.

        Args:
            tokens: (B, T) inputs.
            last: number of inputs whose features are returned.
            state: state of the window before; None for the first one.
        """
        if isinstance(self.decoder, AlibiDecoder):
            features, extra = self.decoder.extract_features(tokens, state=state, last=last)
            return features, extra["state"]
        features, _ = self.decoder.extract_features(tokens, encoder_out=None)
        return features[:, -last:], None

    @property
    def attends_within_documents(self) -> bool:
        """True if a token attends only to its own document, as with ``--block-diagonal``."""
        return getattr(self.decoder, "block_diagonal", "none") != "none"

    def check_length(self, length: int) -> None:
        """Check that the positions of the model allow windows of a length.

        Raises:
            UserInputError: the length is larger than ``max_length``.
        """
        if length > self.max_length:
            advice = "Reduce --lengths."
            if is_learned_table(self.decoder):
                advice = (
                    "Reduce --lengths, or reuse the last position with --model-overrides "
                    "'{\"clamp_learned_positions\": true}'."
                )
            raise UserInputError(
                f"'{self.path}' supports windows of at most {self.max_length} "
                f"tokens, not {length}, because of its positions "
                f"({self.method.label}). {advice}"
            )

    def check_stride(self, length: int, stride: int) -> None:
        """Check that windows do not overlap if each hands its state to the next.

        Raises:
            UserInputError: they do.
        """
        if self.memory_length and stride < length:
            raise UserInputError(
                f"'{self.path}' uses memory, which requires in-order windows. Pass --strides full."
            )


def token_losses(decoder: Any, features: Tensor, targets: Tensor) -> Tensor:
    """Return −ln p of each target.

    Only the output layer of a plugin computes a whole (tokens × vocabulary) matrix.

    Args:
        decoder: a fairseq decoder; its ``adaptive_softmax`` is used if there is one, otherwise its
            ``output_layer``.
        features: (B, S, C) of the scored positions.
        targets: (B, S) target tokens.

    Returns:
        (B, S) in fp32 nats, or wider if the features are.
    """
    rows = features.flatten(0, 1)
    flat = targets.flatten()
    if decoder.adaptive_softmax is not None:
        clusters = find_clusters(decoder.adaptive_softmax.cutoff, flat, decoder.padding_idx)
        losses = adaptive_cross_entropy(decoder.adaptive_softmax, rows, clusters, reduce=False)
    elif has_plain_output(decoder):
        layer = decoder.output_projection
        excluded = excluded_symbols(decoder, flat)
        losses = linear_cross_entropy(flat, (rows, layer.weight), reduce=False, excluded=excluded)
    else:  # a plugin has changed the output layer
        scores = decoder.output_layer(rows)
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
        losses = cross_entropy(scores, flat, reduction="none")
    return losses.view(targets.shape)


def load_checkpoint(
    path: Path,
    data: Path,
    device: torch.device | str = "cpu",
    precision: Precision = "fp32",
    overrides: dict | None = None,
) -> LoadedModel:
    """Load a model and check that it has the dictionary of the data.

    Args:
        precision: type of weights and activations.

    Raises:
        UserInputError: the file is not a fairseq checkpoint, the dictionaries differ, or an
            override is not a model option.
    """
    state = checkpoint_utils.load_checkpoint_to_cpu(str(path), {"data": str(data)})
    # Before overrides can change them
    train_length = recorded_train_length(state["cfg"])
    trained_method = MethodSpec.from_options(state["cfg"].model)
    if overrides:
        apply_overrides(state, overrides, path)
    check_dictionary(state, path, data)
    (model,), cfg, task = checkpoint_utils.load_model_ensemble_and_task([str(path)], state=state)
    check_ties(state["model"], model, path)
    model = model.to(device=device, dtype=find_dtype(precision)).eval()
    method = MethodSpec.from_options(cfg.model)
    series = recorded_series(state, path)
    if series is None:
        facts = describe_model(cfg, model, len(task.source_dictionary))
        settings = settings_of_weights(trained_method, train_length, sha256_file(path))
        series = Series(settings, facts=facts)
    elif series.settings.get("plugin") != plugin_sha256(trained_method.names):
        logger.warning("'%s' was trained with another version of its plugin.", path)
    history = state.get("optimizer_history") or [{}]
    updates = int(history[-1].get("num_updates", 0))
    at: int | Literal["best"] = updates
    if path.name == BEST_CHECKPOINT:
        at = "best"
        warn_of_unfinished_training(path)
    positions = model.decoder.embed_positions
    return LoadedModel(
        decoder=model.decoder,
        path=path,
        weights=WeightsIdentity(series, seed=cfg.common.seed, at=at, updates=updates),
        method=method,
        memory_length=getattr(positions, "memory_length", 0) or 0,
        max_length=find_max_length(model),
        # fairseq's own position embeddings don't depend on the number of keys.
        shares_start=not getattr(positions, "depends_on_key_count", False),
        bytes_per_input=values_per_input(cfg.model) * find_dtype(precision).itemsize,
    )


def recorded_series(state: dict, path: Path) -> Series | None:
    """Return the series that a checkpoint has, or the training record next to it; else None."""
    content = (state.get("extra_state") or {}).get(SERIES_KEY)
    if content is not None:
        return read_series(content, str(path))
    last = last_validation(path)
    return None if last is None else last.series


def warn_of_unfinished_training(path: Path) -> None:
    """Warn if the training of a best checkpoint had updates left at its last validation.

    The best checkpoints of a finished and of an unfinished training count as seeds of one model.
    """
    last = last_validation(path)
    if last is None or last.updates is None:
        return
    planned = last.series.settings.get("optimization.max_update", 0)
    if last.updates < planned:
        logger.warning(
            f"'{path}' is the best of the first {last.updates:,} of {planned:,} updates. Finish "
            "the training before you average it with other seeds."
        )


def last_validation(path: Path) -> Result | None:
    """Return the newest result in the training record next to a checkpoint, or None."""
    try:
        return load_training(path.parent).results[-1]
    except (FileNotFoundError, IndexError, UserInputError):
        return None


def find_max_length(model: Any) -> int:
    """Return the longest window that a fairseq model takes."""
    decoder = model.decoder
    # Positions of --block-diagonal begin again in each document, so a window may be longer.
    if is_learned_table(decoder) and decoder.block_diagonal == "none":
        positions = decoder.embed_positions
        if not positions.options.clamp_learned_positions:
            return positions.config.train_length
    return model.max_positions()


def is_learned_table(decoder: Any) -> bool:
    """Return True if one of our decoders has the position method ``learned``."""
    return isinstance(getattr(decoder, "embed_positions", None), Learned)


def values_per_input(options: Any) -> int:
    """Return the estimated number of activations per input of a forward pass.

    Args:
        options: options of a fairseq model.
    """
    width = safe_getattr(options, "decoder_embed_dim", 512)
    inner = safe_getattr(options, "decoder_ffn_embed_dim", 4 * width)
    if safe_getattr(options, "ffn", "mlp") == "swiglu":
        inner *= 2  # the gate and the values
    # Residual stream, norm, q, k, v, attention, its projection, and the feed-forward layer before
    # and after its activation.
    return 10 * width + 2 * inner
