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
from alibi_fairseq.results.files import load_results_file, load_training
from alibi_fairseq.results.record import Measurement
from alibi_fairseq.results.results_file import EvaluationFile

#: File in a model's folder that is written last and has the model's name and settings.
MODEL_FILE = "cell.json"


class FinishedModel(NamedTuple):
    """Results folder of a finished model, with the properties in its name and its settings."""

    folder: Path
    corpus: str
    method: str
    train_length: int
    settings: Mapping


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

#: Keys of results that are equal for models whose articles are paired.
_EQUAL_KEYS = {
    "data_sha256": "different test articles",
    "dictionary_sha256": "different dictionaries",
    "documents": "different kinds of documents",
    "documents_sha256": "different beginnings of documents",
    "score_from": "different scored ranges",
    "score_to": "different scored ranges",
}


def load_losses(*folders: Path) -> dict[EvaluationKey, ArticleLosses]:
    """Read the losses of all finished models.

    Args:
        folders: results folders of the study, and of methods that are compared with it.

    Raises:
        UserInputError: models of a corpus were tested on different articles, with different
            dictionaries, or in different ranges, articles are fewer than two or have different
            numbers of scored tokens, or seeds of a model were trained with different options.
    """
    records: dict[EvaluationKey, dict[int, Measurement]] = defaultdict(dict)
    first_seeds: dict[tuple[str, str, int], FinishedModel] = {}
    first_evaluations: dict[tuple[str, str], _Evaluation] = {}  # by training corpus and tested text
    for model in itertools.chain(*map(finished_models, folders)):
        name = (model.corpus, model.method, model.train_length)
        _check_same_training(first_seeds.setdefault(name, model), model)
        for evaluation in _evaluations_of(model):
            measurement = evaluation.measurement
            tested_on = str(measurement.corpus)
            texts = (model.corpus, tested_on)
            first = first_evaluations.setdefault(texts, evaluation)
            _check_same_articles(first, evaluation)
            if first.measurement.documents_sha256 is None:  # as in older results
                first_evaluations[texts] = evaluation
            key = EvaluationKey(
                corpus=model.corpus,
                method=model.method,
                train_length=model.train_length,
                length=measurement.length,
                stride=measurement.stride,
                variant=measurement.model.label or "",
                tested_on=tested_on,
            )
            assert measurement.model.seed is not None, "a study seeds its models"
            records[key][measurement.model.seed] = measurement
    return {key: _article_losses(key, by_seed) for key, by_seed in records.items()}


def check_same_tests(folders: Iterable[Path]) -> None:
    """Check that the models of several studies were tested on the same articles.

    Args:
        folders: results of the studies; a study without finished models is left out.

    Raises:
        UserInputError: the test data, the dictionaries, or the scored ranges differ.
    """
    first_evaluations: dict[str | None, _Evaluation] = {}  # by tested text
    for folder in folders:
        for model in finished_models(folder):
            for evaluation in _evaluations_of(model):
                tested_on = evaluation.measurement.corpus
                first = first_evaluations.setdefault(tested_on, evaluation)
                _check_same_articles(first, evaluation)


class _Evaluation(NamedTuple):
    """One evaluation.

    Attributes:
        path: its results file.
        measurement: the measurement.
        dictionary_sha256: hash of the dictionary of the data.
    """

    path: Path
    measurement: Measurement
    dictionary_sha256: str | None


def _evaluations_of(model: FinishedModel) -> Iterator[_Evaluation]:
    """Yield the evaluations of a model that have the losses of each article."""
    for path in sorted(model.folder.glob("evaluation*.json")):
        results = load_results_file(path)
        if not isinstance(results, EvaluationFile):
            continue
        for measurement in results.records:
            if measurement.document_bits:
                yield _Evaluation(path, measurement, results.provenance.dictionary_sha256)


def _check_same_training(first: FinishedModel, other: FinishedModel) -> None:
    """Check that two models differ only in their seed.

    Raises:
        UserInputError: another option differs, the training data, or the version of the plugin.
    """
    if _training_settings(first) != _training_settings(other):
        raise UserInputError(
            f"{first.folder} and {other.folder} were trained with different options or data, or "
            "with different versions of a plugin, so they are not seeds of one model. Move one of "
            "them away."
        )


def _training_settings(model: FinishedModel) -> tuple[list[str], str, str | None]:
    """Return the options but the value of ``--seed``, and hashes of training data and plugin."""
    options = list(model.settings["options"])
    options[options.index("--seed") + 1] = ""
    return options, model.settings["data"]["train.bin"], model.settings.get("plugin")


def _check_same_articles(first: _Evaluation, other: _Evaluation) -> None:
    """Check that the articles of two evaluations can be paired.

    Raises:
        UserInputError: the test data, the dictionaries, or the scored ranges differ.
    """
    for key, difference in _EQUAL_KEYS.items():
        if key == "dictionary_sha256":
            values = [first.dictionary_sha256, other.dictionary_sha256]
        else:
            values = [getattr(first.measurement, key), getattr(other.measurement, key)]
        if key == "documents_sha256" and None in values:
            continue
        if values[0] != values[1]:
            raise UserInputError(
                f"{first.path} and {other.path} have {difference} ({key}). "
                "Move the results of one of them to another folder."
            )


def _article_losses(key: EvaluationKey, records: Mapping[int, Measurement]) -> ArticleLosses:
    """Return the losses of one evaluation, with a row per seed and a column per article.

    Args:
        key: the evaluation.
        records: measurement of each seed.
    """
    seeds = tuple(sorted(records))
    tokens = np.array([records[seed].document_tokens for seed in seeds])
    if tokens.shape[1] < 2 or (tokens != tokens[0, 0]).any():
        raise UserInputError(
            f"{key.corpus}: the variance between documents needs at least two, with the same "
            "number of scored tokens. Add 'excerpt' to the corpus."
        )
    bits = np.array([records[seed].document_bits for seed in seeds])
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


#: Validations by updates, for each corpus, method, and training length.
ValidationCurves = Mapping[tuple[str, str, int], Mapping[int, ValidationPoint]]


def load_curves(folder: Path) -> ValidationCurves:
    """Read the losses on the split ``valid`` during training."""
    curves: dict[tuple[str, str, int], dict[int, ValidationPoint]] = {}
    for model in finished_models(folder):
        curve = curves.setdefault((model.corpus, model.method, model.train_length), {})
        for validation in load_training(model.folder).records:
            if validation.subset != "valid":  # --valid-subset can name several splits
                continue
            if validation.loss_bits is None:
                continue
            if validation.updates not in curve:
                curve[validation.updates] = ValidationPoint(validation.trained_tokens or 0)
            curve[validation.updates].bits.append(validation.loss_bits)
    return curves


def load_provenance(folder: Path) -> dict[str, dict]:
    """Read the provenance of the training of each finished model, by the model's name.

    Its key ``hours`` has the duration of the training over all sessions.
    """
    provenance = {}
    for model in finished_models(folder):
        training = load_training(model.folder)
        hours = training.records[-1].hours
        origin = training.provenance.model_dump(exclude_unset=True)
        provenance[model.folder.name] = {**origin, "hours": hours}
    return provenance


def load_tuning(folder: Path) -> dict[str, dict]:
    """Read the outcome of each choice of a learning rate, by ``CORPUS/METHOD-LENGTH``."""
    outcomes = {}
    for path in sorted(folder.glob("tuning/*/*-tuning.json")):
        name = path.name.removesuffix("-tuning.json")
        outcome = json.loads(path.read_text(encoding="utf-8"))["result"]
        outcomes[f"{path.parent.name}/{name}"] = outcome
    return outcomes
