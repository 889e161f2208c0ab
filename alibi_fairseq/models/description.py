"""Description of a model, from fairseq's configuration of its training."""

from __future__ import annotations

from typing import Any

from fairseq.utils import safe_getattr

from ..results.series import Facts


def describe_model(cfg: Any, model: Any, vocabulary: int) -> Facts:
    """Return the properties of a fairseq model for tables.

    Args:
        cfg: configuration of its training.
        model: the model.
        vocabulary: size of its dictionary.
    """
    positions = getattr(model.decoder, "embed_positions", None)
    return Facts(
        architecture=cfg.model._name,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        layers=len(model.decoder.layers),
        width=safe_getattr(cfg.model, "decoder_embed_dim", 512),
        vocabulary=vocabulary,
        memory_length=getattr(positions, "memory_length", 0) or None,
    )


def recorded_train_length(cfg: Any) -> int:
    """Return the training length that a training run's configuration records, in tokens.

    Only our models have it as an option.
    """
    return getattr(cfg.model, "train_length", None) or cfg.task.tokens_per_sample
