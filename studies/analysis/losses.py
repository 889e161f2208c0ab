"""Losses by document, of all seeds of each evaluation."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from alibi_fairseq.errors import UserInputError
from alibi_fairseq.results.result import Result
from alibi_fairseq.results.values import TextValues

from .evaluation_key import EvaluationKey, TrainedModel


@dataclass(frozen=True)
class DocumentLosses:
    """Mean loss of each document under the models of several seeds.

    Attributes:
        model: the models; equal for evaluations of the same models.
        seeds: (S,) seeds in ascending order.
        nats: (S, K) mean loss per scored token of K documents.
    """

    model: TrainedModel
    seeds: tuple[int, ...]
    nats: np.ndarray

    @property
    def perplexity(self) -> float:
        """Geometric mean over seeds and documents."""
        return math.exp(self.nats.mean())


Losses = Mapping[EvaluationKey, DocumentLosses]


class Measurement(NamedTuple):
    """The result of one evaluation of a model of one seed, and the file that has it."""

    model: TrainedModel
    path: Path
    result: Result

    @property
    def key(self) -> EvaluationKey:
        """The evaluation, which all seeds have."""
        case = self.result.case
        variant = self.result.reading.variant
        return EvaluationKey(*self.model, case.length, case.stride, variant, case.corpus)

    @property
    def documents(self) -> dict[str, object]:
        """What measurements share whose documents are paired, by the name of the difference."""
        case = self.result.case
        assert self.result.values is not None, "only evaluations with losses are compared"
        return {
            "test documents": case.text,
            "kinds of documents": case.separator,
            "beginnings of documents": self.result.values.documents,
            "scored ranges": (case.score_from, case.score_to),
        }


def join_losses(measurements: Iterable[Measurement]) -> dict[EvaluationKey, DocumentLosses]:
    """Return the losses by document, with all seeds of each evaluation.

    Measurements without the losses of each document are left out.

    Raises:
        UserInputError: models were tested on different documents of a text or in different ranges,
            documents are fewer than two or have different numbers of scored tokens, or seeds of a
            model were trained differently.
    """
    seeds: dict[EvaluationKey, dict[int, Measurement]] = defaultdict(dict)
    compared = []
    for measurement in measurements:
        values = measurement.result.values
        if not isinstance(values, TextValues) or not values.document_bits:
            continue
        key = measurement.key
        seed = measurement.result.seed
        assert seed is not None, "a study seeds its models"
        for other in seeds[key].values():
            _check_same_training(other, measurement)
        seeds[key][seed] = measurement
        compared.append(measurement)
    check_same_documents(compared)
    return {key: _document_losses(key, by_seed) for key, by_seed in seeds.items()}


def _check_same_training(first: Measurement, other: Measurement) -> None:
    """Check that the models of two measurements differ only in their seed.

    Raises:
        UserInputError: another setting of the training differs, or its length.
    """
    same_series = first.result.series == other.result.series
    if not same_series or first.result.reading != other.result.reading:
        raise UserInputError(
            f"{first.path.parent} and {other.path.parent} were trained with different options or "
            "data, or with different versions of a plugin, so they are not seeds of one model. "
            "Move one of them away."
        )


def check_same_documents(measurements: Iterable[Measurement]) -> None:
    """Check that the documents of measurements on the same text can be paired.

    Raises:
        UserInputError: the test text, its documents, or the scored ranges differ.
    """
    known: dict[tuple[str, str], tuple[object, Path]] = {}
    for measurement in measurements:
        tested_on = measurement.result.case.corpus
        for name, value in measurement.documents.items():
            first, path = known.setdefault((tested_on, name), (value, measurement.path))
            if value != first:
                raise UserInputError(
                    f"{path} and {measurement.path} have different {name}. Move the results of one "
                    "of them to another folder."
                )


def _document_losses(key: EvaluationKey, measurements: Mapping[int, Measurement]) -> DocumentLosses:
    """Return the losses of one evaluation, with a row per seed and a column per document.

    Args:
        key: the evaluation.
        measurements: measurement of each seed.
    """
    seeds = tuple(sorted(measurements))
    values = []
    for seed in seeds:
        of_seed = measurements[seed].result.values
        assert isinstance(of_seed, TextValues), "other results are left out"
        values.append(of_seed)
    tokens = np.array([of_seed.document_tokens for of_seed in values])
    if tokens.shape[1] < 2 or (tokens != tokens[0, 0]).any():
        raise UserInputError(
            f"{key.corpus}: the variance between documents needs at least two, with the same "
            "number of scored tokens. Add 'excerpt' to the corpus."
        )
    bits = np.array([of_seed.document_bits for of_seed in values])
    return DocumentLosses(key.model, seeds, bits * math.log(2) / tokens)
