"""Load a checkpoint through fairseq for evaluation.

Shapes: B windows, T inputs of a window, S tokens it scores, C model width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from fairseq import checkpoint_utils
from fairseq.data import Dictionary
from omegaconf import OmegaConf, open_dict
from torch import Tensor

from ..checkpoints.loading import check_ties, wrong_parts
from ..errors import BadInput
from ..models.config import AlibiLanguageModelConfig
from ..models.decoder import AlibiDecoder
from ..positions.alibi import SLOPE_KINDS
from ..results.provenance import STATE_KEY, fingerprint
from .measure import Scorer
from .memory_usage import default_budget, windows_per_batch
from .scoring import token_losses
from .windows import Span, Window, plan_windows, share_start

PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class LoadedModel:
    """A model in evaluation mode and its metadata.

    Attributes:
        decoder: the fairseq decoder, on its device and in its precision.
        facts: ``model, position_method, train_length, checkpoint, updates, seed``, and the model's
            ``layers, width, parameters, vocabulary``.
        max_length: longest window the model takes.
        memory_length: past states per layer that the model attends to; 0 without a memory.
        shares_start: the windows at the start of a split may be one pass, because a token's score
            does not depend on the tokens after it, nor on their number.
        bytes_per_input: estimated memory per input of a forward pass.
    """

    decoder: Any
    facts: dict
    max_length: int
    memory_length: int
    shares_start: bool
    bytes_per_input: int

    def windows(
        self, tokens: int, length: int, stride: int, spans: Sequence[Span] | None = None
    ) -> list[Window]:
        """The passes that score ``tokens`` tokens, see :mod:`.windows`."""
        windows = plan_windows(tokens, length, stride, spans)
        return share_start(windows) if self.shares_start else windows

    def windows_per_batch(self, length: int, device: torch.device, budget: int | None) -> int:
        """Number of windows to compute at once; with a memory, which each hands to the next, 1.

        Args:
            budget: bytes a forward pass may take, or None for the device's default.
        """
        if self.memory_length:
            return 1
        budget = budget or default_budget(device)
        return windows_per_batch(length, self.bytes_per_input, budget, device)

    def scorer(self) -> Scorer:
        """A scorer for one pass over a split; with a memory, windows must be scored in order."""
        return RecurrentScorer(self.decoder) if self.memory_length else self._score

    def _score(self, tokens: Tensor, targets: Tensor) -> Tensor:
        if isinstance(self.decoder, AlibiDecoder):
            features, _ = self.decoder.extract_features(tokens, last=targets.shape[1])
        else:
            features, _ = self.decoder.extract_features(tokens, encoder_out=None)
            features = features[:, -targets.shape[1] :]
        return token_losses(self.decoder, features, targets)  # features: (B, S, C)


class RecurrentScorer:
    """Scores consecutive windows, carrying the memory from each to the next."""

    def __init__(self, decoder: AlibiDecoder):
        self._decoder = decoder
        self._memory: list[Tensor] | None = None

    def __call__(self, tokens: Tensor, targets: Tensor) -> Tensor:
        features, extra = self._decoder.extract_features(tokens, memory=self._memory)
        self._memory = extra["memory"]
        return token_losses(self._decoder, features, targets)


def load_checkpoint(
    path: Path,
    data: Path,
    dictionary: Dictionary,
    device: torch.device,
    precision: str = "fp32",
    overrides: dict | None = None,
    trained_with: Path | None = None,
) -> LoadedModel:
    """Load a model and check that its dictionary is that of the data.

    Args:
        path: a fairseq checkpoint.
        data: the folder of the data to evaluate on.
        dictionary: that data's dictionary.
        precision: a key of ``PRECISIONS``.
        overrides: options of the stored configuration to override.
        trained_with: training dictionary, for checkpoints that do not store its fingerprint; a
            ``dict.txt`` next to the checkpoint is found automatically.

    Raises:
        BadInput: if the file is not a fairseq checkpoint, or the dictionaries differ, or an override
            names no option.
    """
    state = checkpoint_utils.load_checkpoint_to_cpu(
        str(path), {**(overrides or {}), "data": str(data)}
    )
    with wrong_parts(path):
        add_later_options(state, overrides or {})
        check_overrides(state, overrides or {})
        check_dictionary(state, path, dictionary, trained_with)
        (model,), cfg, _ = checkpoint_utils.load_model_ensemble_and_task([str(path)], state=state)
        check_ties(state["model"], model, path)
        history = state.get("optimizer_history") or [{}]
        updates = int(history[-1].get("num_updates", 0))
    model = model.to(device=device, dtype=PRECISIONS[precision]).eval()
    width = getattr(cfg.model, "decoder_embed_dim", 512)
    inner = getattr(cfg.model, "decoder_ffn_embed_dim", 4 * width)
    return LoadedModel(
        decoder=model.decoder,
        facts={
            "model": cfg.model._name,
            "position_method": position_method(cfg.model),
            "train_length": getattr(cfg.model, "train_length", None) or cfg.task.tokens_per_sample,
            "checkpoint": str(path),
            "updates": updates,
            "seed": cfg.common.seed,
            "layers": len(model.decoder.layers),
            "width": width,
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "vocabulary": len(dictionary),
        },
        max_length=model.max_positions(),
        memory_length=getattr(model.decoder.embed_positions, "memory_length", 0),
        shares_start=getattr(cfg.model, "alibi_scale", None) != "dynamic",
        # Residual stream, norm, q, k, v, attention, its projection, and the feed-forward layer
        # before and after its activation.
        bytes_per_input=(10 * width + 2 * inner) * PRECISIONS[precision].itemsize,
    )


def add_later_options(state: dict, overrides: dict) -> None:
    """Apply overrides of options that this project's models have had only since a checkpoint's training.

    fairseq applies those alone that the stored configuration has.
    """
    model = (state.get("cfg") or {}).get("model") or {}
    if "position_method" in model:
        with open_dict(state["cfg"]):
            for name in overrides:
                if name in AlibiLanguageModelConfig.__dataclass_fields__ and name not in model:
                    model[name] = overrides[name]


def check_overrides(state: dict, overrides: dict) -> None:
    """Raises BadInput if an override names no option in a group of the stored configuration.

    fairseq ignores such an override.
    """
    if state.get("cfg") is None:
        return
    groups = [group for group in state["cfg"].values() if OmegaConf.is_dict(group)]
    for name in overrides:
        if not any(name in group for group in groups):
            raise BadInput(
                f"The checkpoint has no option '{name}' to override; correct --model-overrides."
            )


def position_method(options) -> str:
    """The position method of a model of this package or of fairseq's own ``transformer_lm``.

    ALiBi with slopes other than the paper's is a method of its own in results, so that no table takes
    it for the paper's: ``alibi_trainable_slopes``, ``alibi_random_slopes``, ``alibi_given_slopes``.
    So is any method with ``--score-scaling``: ``rotary_logn``, ``alibi_ssmax``.
    """
    if "position_method" in options:
        slopes = getattr(options, "alibi_slopes", "paper")
        scaling = getattr(options, "score_scaling", "none")
        name = options.position_method
        if slopes != "paper":
            name = f"alibi_{slopes if slopes in SLOPE_KINDS else 'given'}_slopes"
        return name if scaling == "none" else f"{name}_{scaling}"
    if options.no_token_positional_embeddings:
        return "none"
    return "learned" if options.decoder_learned_pos else "sinusoidal"


def check_dictionary(
    state: dict, path: Path, dictionary: Dictionary, trained_with: Path | None
) -> None:
    """Raises BadInput if a checkpoint was trained with another dictionary.

    Checkpoints of this project's models store a fingerprint of the dictionary. For others its contents
    are compared with ``trained_with`` or a ``dict.txt`` next to the checkpoint, and its size with the
    embeddings when they are loaded.
    """
    if STATE_KEY in state.get("task_state", {}):
        return  # checked when the model is built
    beside = path.with_name("dict.txt")
    reference = trained_with or (beside if beside.is_file() else None)
    if reference is None:
        return
    if not reference.is_file():
        raise BadInput(f"There is no dictionary file '{reference}'; change --dict.")
    theirs = Dictionary.load(str(reference))
    if fingerprint(theirs) != fingerprint(dictionary):
        raise BadInput(
            f"The data was numbered with another dictionary than '{path}' was trained with: "
            f"{first_difference(theirs, dictionary)}; preprocess the text with '{reference}' "
            "(fairseq-preprocess --srcdict)."
        )


def first_difference(theirs: Dictionary, ours: Dictionary) -> str:
    """Describes where two dictionaries first differ."""
    for number, (one, other) in enumerate(zip(theirs.symbols, ours.symbols)):
        if one != other:
            return f"number {number} is '{one}' for the model and '{other}' in the data"
    return f"the model's has {len(theirs)} symbols, the data's {len(ours)}"
