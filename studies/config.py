"""Description of a study, and checks that its models suit the tests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, NamedTuple

import pydantic.dataclasses
from pydantic import Field, ValidationError

from alibi_fairseq.errors import UserInputError, describe_invalid
from alibi_fairseq.evaluation.option_types import PositiveInt
from alibi_fairseq.experiment.planned_evaluations import plan_sweeps
from alibi_fairseq.experiment.schema import (
    STRICT,
    Evaluation,
    ExperimentConfig,
    Model,
    ModelGroup,
)
from alibi_fairseq.experiment.training_flags import users_flags
from alibi_fairseq.options import yaml_key
from alibi_fairseq.positions.registry import method_options
from alibi_fairseq.positions.spec import LayerMethod, MethodSpec

from .analysis.compared_models import ComparedModels
from .analysis.evaluation_key import EvaluationKey, TrainedModel, method_notation
from .analysis.six_tests import evaluation_name, needed_evaluations
from .corpora.config import StudyCorpus


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT, kw_only=True)
class StudyConfig(ExperimentConfig):
    """Experiment whose models a page compares."""

    title: str = yaml_key("title of the page")
    corpora: Annotated[tuple[StudyCorpus, ...], Field(min_length=1)] = yaml_key(
        "corpora to train and evaluate on"
    )
    shared_vocabulary: PositiveInt = yaml_key(
        "number of entries of one sentencepiece dictionary that all texts share"
    )
    introduction: str = yaml_key(
        "introduction of the study's page, in Markdown; replaces the default one", ""
    )
    tests: ComparedModels | None = yaml_key(
        "`corpus` and `train_length` of the models that the six tests compare; the results then "
        "get their own page",
        None,
    )

    def __post_init__(self):
        super().__post_init__()
        for model in self.all_models():
            layers = model.method.layers
            if len(layers) > 1 or not layers[0].name.isidentifier():
                raise ValueError(
                    f"models: '{model.method.notation}' is not the name of one method, without "
                    "hyphens, which a study needs. Use alibi-fairseq compare"
                )
            _check_named_options(model)
        _check_names(self)
        self.check_method_keys()
        if self.tests:
            _check_tests(self, self.tests)

    def with_data(self, data: Mapping[str, Path]) -> StudyConfig:
        """Return the same study with the binary data of its corpora.

        Args:
            data: folder of each corpus; a missing one is replaced by a placeholder.
        """
        corpora = []
        for corpus in self.corpora:
            folder = data.get(corpus.name, Path(corpus.name.upper()))
            corpora.append(replace(corpus, data=str(folder)))
        return replace(self, corpora=tuple(corpora))

    def with_methods(self, methods: Sequence[str], user_dir: str | None) -> StudyConfig:
        """Return the same study of other methods, at the training length of the tests.

        They are trained as the ALiBi models of the tests are, and evaluated at the same lengths, in
        windows without overlap. Only tests of ALiBi need other ones.

        Args:
            methods: position methods.
            user_dir: folder of the plugin with the methods.

        Raises:
            UserInputError: a study cannot have the methods.
        """
        assert self.tests is not None
        specs = tuple(MethodSpec.parse(name) for name in methods)
        group = self._group_of_tests()
        values = {field.name: getattr(group, field.name) for field in fields(ModelGroup)}
        values["method_flags"] = _of_methods(values.get("method_flags", {}), specs)
        of_alibi = group.select_evaluations(MethodSpec.parse("alibi"), self.tests.train_length)
        evaluations = []
        for evaluation in of_alibi:
            variants = _of_methods(evaluation.variants, specs)
            evaluations.append(
                replace(evaluation, sliding={}, variants=variants, methods=(), train_lengths=())
            )
        values["evaluations"] = tuple(evaluations)
        values["methods"] = specs
        values["train_lengths"] = (self.tests.train_length,)
        values["user_dir"] = user_dir
        try:
            return replace(self, models=(ModelGroup(**values),))
        except ValidationError as error:
            raise UserInputError(describe_invalid(error)) from error

    def _group_of_tests(self) -> ModelGroup:
        """Return the models that added ones are compared with: ALiBi at the tests' length."""
        assert self.tests is not None
        for group in self.models:
            names = [method.notation for method in group.methods]
            if "alibi" in names and self.tests.train_length in group.train_lengths:
                return group
        return self.models[0]


class StudyFile(NamedTuple):
    """A study's YAML file, and where the results are that its page shows.

    Attributes:
        path: the file. A template of the page may be next to it.
        config: the study that it describes.
        all_results: folder with a folder of results for each study.
    """

    path: Path
    config: StudyConfig
    all_results: Path

    @property
    def results(self) -> Path:
        """Folder of the results of this study, which holds ``cells/`` and ``tuning/``."""
        return self.all_results / self.path.stem


def _of_methods(by_method: Mapping, methods: Sequence[MethodSpec]) -> dict:
    """Return the values of some methods."""
    return {method: value for method, value in by_method.items() if method in methods}


def _check_named_options(model: Model) -> None:
    """Check that no flag sets an option that is part of the name of the model's method.

    The folder of the results has the name of the method in ``methods``, but the results record the
    option, so they would not be found.

    Raises:
        ValueError: a flag sets one.
    """
    (layer,) = model.method.layers
    for word in users_flags(model):
        flag = word.partition("=")[0]
        option = flag.removeprefix("--").removeprefix("no-").replace("-", "_")
        is_named = LayerMethod(layer.name, {option: ""}).label_options
        if flag.startswith("--") and is_named and option in method_options(layer.name):
            raise ValueError(
                f"train_flags, method_flags: {flag} is part of the name of the method; write "
                f"{layer.name}/{option}=VALUE in methods instead"
            )


def _check_names(config: ExperimentConfig) -> None:
    """Check that no two models have the same name, with which the results of one would be kept.

    Raises:
        ValueError: two methods differ only in what is not part of their names.
    """
    methods: dict[tuple[TrainedModel, int], MethodSpec] = {}
    for model in config.all_models():
        first = methods.setdefault((trained_model(model), model.seed), model.method)
        if first != model.method:
            raise ValueError(
                f"models: a study can't tell '{first.notation}' and '{model.method.notation}' "
                "apart. Train them with two files, each with its own --results"
            )


def _check_tests(config: ExperimentConfig, tests: ComparedModels) -> None:
    """Check that the models of the six tests are evaluated as the tests need.

    Models may be missing. The tests that need them are then listed as not run.

    Raises:
        ValueError: no model has the corpus and the training length of the tests, the scored range
            does not suit them, or a model lacks an evaluation.
    """
    evaluations: dict[TrainedModel, set[EvaluationKey]] = {}
    for group in config.models:
        for evaluation in group.evaluations:
            _check_scored_range(evaluation, tests)
    for model in config.all_models():
        evaluations[trained_model(model)] = set(_list_evaluations(model))
    if not any((corpus, n) == (tests.corpus, tests.train_length) for corpus, _, n in evaluations):
        raise ValueError(
            f"tests: no model is trained on the corpus '{tests.corpus}' with the training length "
            f"{tests.train_length}; name a corpus and a training length of the models"
        )
    for key in needed_evaluations(tests):
        if key.model in evaluations and key not in evaluations[key.model]:
            raise ValueError(
                f"tests: they need {key.method} with the training length {key.train_length} at "
                f"{evaluation_name(key)}; add this to eval_lengths, sliding, or variants"
            )


def _check_scored_range(evaluation: Evaluation, tests: ComparedModels) -> None:
    """Check that each document has a scored range after, and as long as, the longest window.

    Raises:
        ValueError: it has not.
    """
    longest = 16 * tests.train_length
    if evaluation.per_document is None:
        raise ValueError("per_document: the tests need the loss of each document; set it")
    if evaluation.score_from is None or evaluation.score_from < longest:
        raise ValueError(
            f"score_from: it must be at least {longest}, 16 training lengths of the tests, so that "
            "the longest window fits before the scored tokens"
        )
    if evaluation.score_to is None or evaluation.score_to < evaluation.score_from + longest:
        raise ValueError(
            f"score_to: it must be at least {evaluation.score_from + longest}, so that the scored "
            "tokens fill a window of 16 training lengths of the tests"
        )


def _list_evaluations(model: Model) -> Iterator[EvaluationKey]:
    """Yield the evaluations of a model on the corpus that it is trained on."""
    for sweep in plan_sweeps(model):
        for length, stride in sweep.config.windows():
            yield EvaluationKey(
                *trained_model(model),
                length=length,
                stride=stride,
                variant=sweep.variant,
                tested_on=model.corpus.name,
            )


def trained_model(model: Model) -> TrainedModel:
    """Return what a planned model shares with its other seeds."""
    return TrainedModel(model.corpus.name, method_notation(model.method), model.train_length)
