"""Losses by article of a study's models, read from their results files."""

from __future__ import annotations

import itertools
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from alibi_fairseq.errors import UserInputError
from alibi_fairseq.results.file import load
from alibi_fairseq.results.files import TRAINING_FILE
from alibi_fairseq.results.provenance import Provenance
from alibi_fairseq.results.result import Result, TextValues

#: File in a model's folder that is written last and has the model's name and settings.
MODEL_FILE = "cell.json"


class FinishedModel(NamedTuple):
    """Results folder of a finished model, with the properties in its name and its settings."""

    folder: Path
    corpus: str
    method: str
    train_length: int
    settings: Mapping

    @property
    def model(self) -> tuple[str, str, int]:
        """Corpus, method, and training length, which the seeds share."""
        return (self.corpus, self.method, self.train_length)


def finished_models(folder: Path) -> list[FinishedModel]:
    """Return the finished models of a study, in order of name.

    Unfinished and diverged models are left out, and so are folders that were renamed to keep them
    aside.

    Args:
        folder: holds ``cells/CORPUS-METHOD-LENGTH-seedN/``.
    """
    models = []
    for path, description in _descriptions(folder):
        if not description.get("diverged"):
            corpus, method, length, _ = description["name"].rsplit("-", 3)
            settings = description["settings"]
            models.append(FinishedModel(path, corpus, method, int(length), settings))
    return models


def diverged_models(folder: Path) -> list[str]:
    """Return the names of the models whose training diverged, in order."""
    models = []
    for _, description in _descriptions(folder):
        if description.get("diverged"):
            models.append(description["name"])
    return models


def _descriptions(folder: Path) -> Iterator[tuple[Path, dict]]:
    """Yield the folder and the description of each model, in order of name."""
    for path in sorted(folder.glob(f"cells/*/{MODEL_FILE}")):
        description = json.loads(path.read_text(encoding="utf-8"))
        if description["name"] == path.parent.name:
            yield path.parent, description


@dataclass(frozen=True)
class EvaluationKey:
    """One evaluation of the models of a method and training length.

    Attributes:
        corpus: the text that the models were trained on.
        length: tokens per evaluation window.
        stride: tokens scored per window; equal to ``length`` without overlap.
        variant: name of a set of overridden options; empty as trained.
        tested_on: the text of the test split.
    """

    corpus: str
    method: str
    train_length: int
    length: int
    stride: int
    variant: str = ""
    tested_on: str = ""

    @property
    def model(self) -> tuple[str, str, int]:
        """Corpus, method, and training length of the models."""
        return (self.corpus, self.method, self.train_length)


@dataclass(frozen=True)
class ArticleLosses:
    """Mean loss of each article under the models of several seeds.

    Attributes:
        model: corpus, method, and training length; equal for evaluations of the same models.
        seeds: (S,) seeds in ascending order.
        nats: (S, K) mean loss per scored token of K articles.
    """

    model: tuple[str, str, int]
    seeds: tuple[int, ...]
    nats: np.ndarray

    @property
    def perplexity(self) -> float:
        """Geometric mean over seeds and articles."""
        return math.exp(self.nats.mean())


Losses = Mapping[EvaluationKey, ArticleLosses]


def load_losses(*folders: Path) -> dict[EvaluationKey, ArticleLosses]:
    """Read the losses of all finished models.

    Args:
        folders: results folders of the study, and of methods that are compared with it.

    Raises:
        UserInputError: models of a corpus were tested on different articles, with different
            dictionaries, or in different ranges, articles are fewer than two or have different
            numbers of scored tokens, or seeds of a model were trained with different options.
    """
    results: dict[EvaluationKey, dict[int, Result]] = defaultdict(dict)
    first_seeds: dict[EvaluationKey, _Evaluation] = {}
    first_evaluations: dict[tuple[str, str], _Evaluation] = {}  # by training corpus and tested text
    for model in itertools.chain(*map(finished_models, folders)):
        for evaluation in _evaluations_of(model):
            result = evaluation.result
            tested_on = result.case.corpus
            texts = (model.corpus, tested_on)
            first = first_evaluations.setdefault(texts, evaluation)
            _check_same_articles(first, evaluation)
            if first.articles["documents_sha256"] is None:  # as in older results
                first_evaluations[texts] = evaluation
            key = EvaluationKey(
                corpus=model.corpus,
                method=model.method,
                train_length=model.train_length,
                length=result.case.length,
                stride=result.case.stride,
                variant=result.reading.variant,
                tested_on=tested_on,
            )
            _check_same_training(first_seeds.setdefault(key, evaluation), evaluation)
            assert result.seed is not None, "a study seeds its models"
            results[key][result.seed] = result
    return {key: _article_losses(key, by_seed) for key, by_seed in results.items()}


def check_same_tests(folders: Iterable[Path]) -> None:
    """Check that the models of several studies were tested on the same articles.

    Args:
        folders: results of the studies; a study without finished models is left out.

    Raises:
        UserInputError: the test data, the dictionaries, or the scored ranges differ.
    """
    first_evaluations: dict[str, _Evaluation] = {}  # by tested text
    for folder in folders:
        for model in finished_models(folder):
            for evaluation in _evaluations_of(model):
                tested_on = evaluation.result.case.corpus
                first = first_evaluations.setdefault(tested_on, evaluation)
                _check_same_articles(first, evaluation)


@dataclass(frozen=True)
class _Evaluation:
    """One evaluation.

    Attributes:
        path: its results file.
        result: the result.
        dictionary_sha256: hash of the dictionary of the data.
    """

    path: Path
    result: Result
    dictionary_sha256: str | None

    @property
    def articles(self) -> dict[str, object]:
        """What evaluations share whose articles are paired, by key."""
        case = self.result.case
        assert self.result.values is not None, "only evaluations with losses are read"
        boundaries = self.result.values.documents
        return {
            "data_sha256": case.text,
            "dictionary_sha256": self.dictionary_sha256,
            "documents": case.separator,
            "documents_sha256": None if boundaries == case.separator else boundaries,
            "score_from": case.score_from,
            "score_to": case.score_to,
        }


#: What differs between evaluations with different articles, by key.
_DIFFERENCES = {
    "data_sha256": "different test articles",
    "dictionary_sha256": "different dictionaries",
    "documents": "different kinds of documents",
    "documents_sha256": "different beginnings of documents",
    "score_from": "different scored ranges",
    "score_to": "different scored ranges",
}


def _evaluations_of(model: FinishedModel) -> Iterator[_Evaluation]:
    """Yield the evaluations of a model that have the losses of each article."""
    for path in sorted(model.folder.glob("evaluation*.json")):
        file = load(path)
        dictionary = file.provenance.dictionary_sha256 if file.provenance else None
        for result in file.results:
            if isinstance(result.values, TextValues) and result.values.document_bits:
                yield _Evaluation(path, result, dictionary)


def _check_same_training(first: _Evaluation, other: _Evaluation) -> None:
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


def _check_same_articles(first: _Evaluation, other: _Evaluation) -> None:
    """Check that the articles of two evaluations can be paired.

    Raises:
        UserInputError: the test data, the dictionaries, or the scored ranges differ.
    """
    for key, value in first.articles.items():
        other_value = other.articles[key]
        if key == "documents_sha256" and None in (value, other_value):
            continue
        if value != other_value:
            raise UserInputError(
                f"{first.path} and {other.path} have {_DIFFERENCES[key]} ({key}). "
                "Move the results of one of them to another folder."
            )


def _article_losses(key: EvaluationKey, results: Mapping[int, Result]) -> ArticleLosses:
    """Return the losses of one evaluation, with a row per seed and a column per article.

    Args:
        key: the evaluation.
        results: result of each seed.
    """
    seeds = tuple(sorted(results))
    values = [results[seed].values for seed in seeds]
    tokens = np.array([of_seed.document_tokens for of_seed in values])
    if tokens.shape[1] < 2 or (tokens != tokens[0, 0]).any():
        raise UserInputError(
            f"{key.corpus}: the variance between documents needs at least two, with the same "
            "number of scored tokens. Add 'excerpt' to the corpus."
        )
    bits = np.array([of_seed.document_bits for of_seed in values])
    return ArticleLosses(
        model=(key.corpus, key.method, key.train_length),
        seeds=seeds,
        nats=bits * math.log(2) / tokens,
    )


@dataclass
class ValidationPoint:
    """Validation of the models of several seeds after the same number of updates.

    Attributes:
        tokens: tokens trained on so far.
        bits: mean loss per token of each seed.
    """

    tokens: int
    bits: list[float] = field(default_factory=list)


class TrainingOrigin(NamedTuple):
    """Provenance of a training, and its duration over all sessions."""

    provenance: Provenance
    hours: float


#: Validations by updates, for each corpus, method, and training length.
ValidationCurves = Mapping[tuple[str, str, int], Mapping[int, ValidationPoint]]


def load_curves(folder: Path) -> ValidationCurves:
    """Read the losses on the split ``valid`` during training."""
    curves: dict[tuple[str, str, int], dict[int, ValidationPoint]] = {}
    for model in finished_models(folder):
        curve = curves.setdefault(model.model, {})
        for validation in load(model.folder / TRAINING_FILE).results:
            if validation.case.split != "valid":  # --valid-subset can name several splits
                continue
            if validation.values is None:
                continue
            assert validation.updates is not None, "a training counts its updates"
            if validation.updates not in curve:
                tokens = validation.cost.trained_tokens or 0
                curve[validation.updates] = ValidationPoint(tokens)
            curve[validation.updates].bits.append(validation.values.loss_bits)
    return curves


def last_validation(model: FinishedModel) -> Result:
    """Read the last validation of a model, which has its size and the cost of its training."""
    return load(model.folder / TRAINING_FILE).results[-1]


def load_provenance(folder: Path) -> dict[str, TrainingOrigin]:
    """Read the origin of the training of each finished model, by the model's name."""
    origins = {}
    for model in finished_models(folder):
        training = load(model.folder / TRAINING_FILE)
        assert training.provenance is not None, "a training records it"
        hours = (training.results[-1].cost.seconds or 0.0) / 3600
        origins[model.folder.name] = TrainingOrigin(training.provenance, hours)
    return origins


def load_tuning(folder: Path) -> dict[str, dict]:
    """Read the outcome of each choice of a learning rate, by ``CORPUS/METHOD-LENGTH``."""
    outcomes = {}
    for path in sorted(folder.glob("tuning/*/*-tuning.json")):
        name = path.name.removesuffix("-tuning.json")
        outcome = json.loads(path.read_text(encoding="utf-8"))["result"]
        outcomes[f"{path.parent.name}/{name}"] = outcome
    return outcomes
