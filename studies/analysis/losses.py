"""Losses by article, of all seeds of each evaluation."""

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
class ArticleLosses:
    """Mean loss of each article under the models of several seeds.

    Attributes:
        model: the models; equal for evaluations of the same models.
        seeds: (S,) seeds in ascending order.
        nats: (S, K) mean loss per scored token of K articles.
    """

    model: TrainedModel
    seeds: tuple[int, ...]
    nats: np.ndarray

    @property
    def perplexity(self) -> float:
        """Geometric mean over seeds and articles."""
        return math.exp(self.nats.mean())


Losses = Mapping[EvaluationKey, ArticleLosses]


class Evaluation(NamedTuple):
    """One result of a model, and the file that has it."""

    model: TrainedModel
    path: Path
    result: Result

    @property
    def key(self) -> EvaluationKey:
        """What the seeds share."""
        case = self.result.case
        variant = self.result.reading.variant
        return EvaluationKey(*self.model, case.length, case.stride, variant, case.corpus)

    @property
    def articles(self) -> dict[str, object]:
        """What evaluations share whose articles are paired, and the name of the difference."""
        case = self.result.case
        assert self.result.values is not None, "only evaluations with losses are compared"
        return {
            "test articles": case.text,
            "kinds of documents": case.separator,
            "beginnings of documents": self.result.values.documents,
            "scored ranges": (case.score_from, case.score_to),
        }


def join_losses(evaluations: Iterable[Evaluation]) -> dict[EvaluationKey, ArticleLosses]:
    """Return the losses by article, with all seeds of each evaluation.

    Evaluations without the losses of each article are left out.

    Raises:
        UserInputError: models were tested on different articles of a text or in different ranges,
            articles are fewer than two or have different numbers of scored tokens, or seeds of a
            model were trained differently.
    """
    seeds: dict[EvaluationKey, dict[int, Evaluation]] = defaultdict(dict)
    compared = []
    for evaluation in evaluations:
        values = evaluation.result.values
        if not isinstance(values, TextValues) or not values.document_bits:
            continue
        key = evaluation.key
        seed = evaluation.result.seed
        assert seed is not None, "a study seeds its models"
        for other in seeds[key].values():
            _check_same_training(other, evaluation)
        seeds[key][seed] = evaluation
        compared.append(evaluation)
    check_same_articles(compared)
    return {key: _article_losses(key, by_seed) for key, by_seed in seeds.items()}


def _check_same_training(first: Evaluation, other: Evaluation) -> None:
    """Check that the models of two evaluations differ only in their seed.

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


def check_same_articles(evaluations: Iterable[Evaluation]) -> None:
    """Check that the articles of evaluations on the same text can be paired.

    Raises:
        UserInputError: the test text, its documents, or the scored ranges differ.
    """
    known: dict[tuple[str, str], tuple[object, Path]] = {}
    for evaluation in evaluations:
        tested_on = evaluation.result.case.corpus
        for name, value in evaluation.articles.items():
            first, path = known.setdefault((tested_on, name), (value, evaluation.path))
            if value != first:
                raise UserInputError(
                    f"{path} and {evaluation.path} have different {name}. Move the results of one "
                    "of them to another folder."
                )


def _article_losses(key: EvaluationKey, evaluations: Mapping[int, Evaluation]) -> ArticleLosses:
    """Return the losses of one evaluation, with a row per seed and a column per article.

    Args:
        key: the evaluation.
        evaluations: evaluation of each seed.
    """
    seeds = tuple(sorted(evaluations))
    values = [evaluations[seed].result.values for seed in seeds]
    tokens = np.array([of_seed.document_tokens for of_seed in values])
    if tokens.shape[1] < 2 or (tokens != tokens[0, 0]).any():
        raise UserInputError(
            f"{key.corpus}: the variance between documents needs at least two, with the same "
            "number of scored tokens. Add 'excerpt' to the corpus."
        )
    bits = np.array([of_seed.document_bits for of_seed in values])
    return ArticleLosses(key.model, seeds, bits * math.log(2) / tokens)
