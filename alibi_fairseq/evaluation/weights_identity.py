"""Identity of the weights that an evaluation reads, which every result of them records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ..positions.spec import MethodSpec
from ..results.result import Result
from ..results.series import Facts, Series
from ..results.training_settings import method_json


@dataclass(frozen=True)
class WeightsIdentity:
    """Weights of a checkpoint or of a Hugging Face folder, without their tensors.

    Attributes:
        series: how they were trained.
        seed: seed of the training; None if unknown.
        at: checkpoint of the training, as in :class:`..results.series.Reading`.
        updates: update count of the checkpoint; None if unknown.
        sha256: hash of the checkpoint, or of all files of the folder; None until it is read.
        variant: name in tables, besides position method and training length.
    """

    series: Series
    seed: int | None
    at: int | Literal["best"] | None
    updates: int | None = None
    sha256: str | None = None
    variant: str = ""


def identify_weights(result: Result) -> WeightsIdentity:
    """Return the identity of the weights that a result is of."""
    return WeightsIdentity(
        result.series, result.seed, result.reading.at, result.updates, result.checkpoint_sha256
    )


def unknown_training(
    method: MethodSpec, train_length: int, weights_sha256: str, facts: Facts
) -> Series:
    """Return the series of a model of which only the weights are known.

    Args:
        method: position methods of the layers.
        train_length: training length in tokens.
        weights_sha256: hash of the weights, which no other training has.
        facts: properties of the model.
    """
    settings: dict[str, Any] = {
        "method": method_json(method),
        "task.tokens_per_sample": train_length,
        "weights": weights_sha256,
    }
    return Series(settings, facts=facts)
