"""Configuration of a study, and checks that its models suit the tests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, fields, replace
from pathlib import Path
from typing import Literal

import pydantic.dataclasses

from alibi_fairseq.experiment.comparison_config import STRICT, ComparisonConfig, ModelSpec
from alibi_fairseq.experiment.config_files import from_mapping
from alibi_fairseq.experiment.evaluations import eval_steps_of
from alibi_fairseq.experiment.values import ListOrItem, PositiveInt
from alibi_fairseq.results.manifest import Name

from .corpus_excerpt import ExcerptConfig
from .losses import EvaluationKey
from .primary_tests import StudiedModels, evaluation_name, needed_evaluations

#: Keys of a part that list its models. All other keys say how they are trained and evaluated.
_KEYS_OF_MODELS = ("methods", "train_lengths", "seeds", "train_on")


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class StudyCorpus:
    """Corpus of a study. The command line gives the path of its text.

    Attributes:
        name: name of the corpus.
        excerpt: size of the excerpt to train and test on (default: the whole text).
        documents: ``files``: each file is a document; ``titles``: a title begins a document, as in
            WikiText's ``*.tokens`` files, and repeated documents are kept once.
        sample: bytes of text to prepare at most, in documents drawn by their hash, repeated ones
            once (default: all of the text).
    """

    name: Name
    excerpt: ExcerptConfig | None = None
    documents: Literal["files", "titles"] = "files"
    sample: PositiveInt | None = None


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class StudyPart(ComparisonConfig):
    """Comparison that can train and evaluate on different corpora.

    Attributes:
        shared_vocabulary: number of entries of one sentencepiece dictionary that all texts share.
        train_on: names of the corpora to train on (default: all).
        also_on: names of corpora on which every model is evaluated, whichever corpus it was trained
            on.
    """

    shared_vocabulary: PositiveInt = field(kw_only=True)
    train_on: ListOrItem[str] = ()
    also_on: ListOrItem[str] = ()

    def __post_init__(self):
        super().__post_init__()
        unknown = {*self.train_on, *self.also_on} - {corpus.name for corpus in self.corpora}
        if unknown:
            raise ValueError(f"there is no corpus '{min(unknown)}'")

    def model_specs(self) -> Iterator[ModelSpec]:
        """Yield the models to train, all of the first seed first."""
        for spec in super().model_specs():
            if not self.train_on or spec.corpus in self.train_on:
                yield spec


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class StudyConfig:
    """A YAML file of models: comparisons that share corpora, training, and evaluation.

    Attributes:
        corpora: corpora of all parts.
        parts: comparisons, in the order of training.
        training: keys of the training that all parts share.
        evaluation: keys of the evaluation that all parts share.
        introduction: first paragraph of a separate page, in Markdown.
        tests: models of the six tests. The results then have a separate page. None, only for the
            configurations in ``small_models/``: they belong to the page of the small models.
    """

    title: str
    corpora: list[StudyCorpus]
    parts: list[dict]
    training: dict = field(default_factory=dict)
    evaluation: dict = field(default_factory=dict)
    introduction: str = ""
    tests: StudiedModels | None = None

    def __post_init__(self):
        parts = self.comparisons({})
        methods = {method for part in parts for method in part.methods}
        for method in methods:
            if not method.notation.isidentifier():
                raise ValueError(
                    f"parts: '{method.notation}' is not the name of one method, without hyphens, "
                    "which a study needs. Give its options in method_flags, or use alibi-fairseq "
                    "compare"
                )
        for part in parts:
            part.check_method_keys(methods)
        _check_equal_parts(parts)
        if self.tests:
            _check_tests(parts, self.tests)

    def comparisons(self, data: Mapping[str, Path]) -> tuple[StudyPart, ...]:
        """Return the parts as comparisons.

        Args:
            data: binary data of each corpus; a missing one is replaced by a placeholder.
        """
        corpora = []
        for corpus in self.corpora:
            folder = data.get(corpus.name, Path(corpus.name.upper()))
            corpora.append({"name": corpus.name, "data": str(folder)})
        shared = {**self.training, **self.evaluation, "corpora": corpora}
        return tuple(from_mapping({**shared, **part}, StudyPart) for part in self.parts)

    def with_methods(self, methods: Sequence[str], user_dir: str | None) -> StudyConfig:
        """Return the same study of other methods, at the training length of the tests.

        Args:
            methods: position methods.
            user_dir: folder of the plugin with the methods.
        """
        assert self.tests is not None
        training = {**self.training, "user_dir": user_dir}
        evaluation = dict(self.evaluation)
        for keys, name in ((training, "method_flags"), (evaluation, "variants")):
            if name in keys:
                keys[name] = {key: keys[name][key] for key in keys[name] if key in methods}
        part = {"methods": list(methods), "train_lengths": self.tests.train_length}
        return replace(self, training=training, evaluation=evaluation, parts=[part])


def _check_equal_parts(parts: Iterable[StudyPart]) -> None:
    """Check that parts with the same model differ only in the models that they list.

    The results folder has one place for a model, so a second version of it could not be kept.

    Raises:
        ValueError: two parts train or evaluate a model differently.
    """
    first_parts: dict[str, StudyPart] = {}
    for part in parts:
        for model in part.model_specs():
            name = run_name(model)
            first = first_parts.setdefault(name, part)
            for field_of_part in fields(part):
                key = field_of_part.name
                if key not in _KEYS_OF_MODELS and getattr(first, key) != getattr(part, key):
                    raise ValueError(
                        f"parts: {name} is in two parts with different {key}. Keep it in one "
                        "part, or use another file for the other part"
                    )


def _check_tests(parts: Iterable[StudyPart], tests: StudiedModels) -> None:
    """Check that the models of the six tests are evaluated as the tests need.

    Models may be missing. The tests that need them are then listed as not run.

    Raises:
        ValueError: no model has the corpus and the training length of the tests, the scored range
            does not suit them, or a model lacks an evaluation.
    """
    evaluations: dict[tuple[str, str, int], set[EvaluationKey]] = {}
    for part in parts:
        _check_scored_range(part, tests)
        for spec in part.model_specs():
            model = (spec.corpus, spec.method.notation, spec.train_length)
            evaluations[model] = set(_evaluations_of(part, spec))
    if not any((corpus, n) == (tests.corpus, tests.train_length) for corpus, _, n in evaluations):
        raise ValueError(
            f"tests: no part trains models on the corpus '{tests.corpus}' with the training length "
            f"{tests.train_length}; name a corpus and a training length of the parts"
        )
    for key in needed_evaluations(tests):
        model = (key.corpus, key.method, key.train_length)
        if model in evaluations and key not in evaluations[model]:
            raise ValueError(
                f"tests: they need {key.method} with the training length {key.train_length} at "
                f"{evaluation_name(key)}; add this to eval_lengths, sliding, or variants"
            )


def _check_scored_range(part: StudyPart, tests: StudiedModels) -> None:
    """Check that each document has a scored range after, and as long as, the longest window.

    Raises:
        ValueError: it has not.
    """
    longest = 16 * tests.train_length
    if part.per_document is None:
        raise ValueError("per_document: the tests need the loss of each document; set it")
    if part.score_from is None or part.score_from < longest:
        raise ValueError(
            f"score_from: it must be at least {longest}, 16 training lengths of the tests, so that "
            "the longest window fits before the scored tokens"
        )
    if part.score_to is None or part.score_to < part.score_from + longest:
        raise ValueError(
            f"score_to: it must be at least {part.score_from + longest}, so that the scored tokens "
            "fill a window of 16 training lengths of the tests"
        )


def _evaluations_of(part: StudyPart, spec: ModelSpec) -> Iterator[EvaluationKey]:
    """Yield the evaluations of a model on the corpus that it is trained on."""
    (corpus,) = [corpus for corpus in part.corpora if corpus.name == spec.corpus]
    for step in eval_steps_of(part, corpus, spec, Path()):
        for _, length, stride in step.cases:
            yield EvaluationKey(
                corpus=spec.corpus,
                method=spec.method.notation,
                train_length=spec.train_length,
                length=length,
                stride=stride,
                variant=step.name,
                tested_on=spec.corpus,
            )


def run_name(spec: ModelSpec) -> str:
    """Return the name of a model's folder in the results."""
    return f"{spec.corpus}-{spec.method.notation}-{spec.train_length}-seed{spec.seed}"
