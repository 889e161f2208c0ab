"""Description of an experiment: corpora, and groups of models with their training and evaluation.

Each field is declared once: its help is the help of the command-line option, and the row of the
reference page (docs/comparison-keys.md); its name is the key in YAML. :mod:`.values` has the types.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import fields, replace
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, Field, model_validator
from pydantic.dataclasses import dataclass

from ..data.probes import PROBES, ProbeName
from ..errors import UserInputError
from ..evaluation.config import SweepConfig
from ..evaluation.option_types import (
    STRICT,
    DocumentBoundaries,
    Float,
    ListOrItem,
    NonEmptyListOrItem,
    PositiveInt,
    Stride,
    TokenCount,
)
from ..options import names, option, same_option, yaml_key
from ..positions.spec import MethodSpec
from ..results.file_names import COMPARISON_FILE, EXPERIMENT_FILE, RESULTS_FILE
from ..results.manifest import Name
from .values import (
    EvalLength,
    Flags,
    LearningRate,
    Method,
    Methods,
    as_methods,
    tokens_at,
)

DEFAULT_TITLE = "Perplexity by evaluation length"
#: Files and folders of the output folder, which no corpus can have as its folder.
RESERVED_NAMES = ("lock", "jobs", COMPARISON_FILE, EXPERIMENT_FILE, RESULTS_FILE)
#: Headings of the fields in the help and on the reference page.
TEXT = "text"
MODELS = "models"
TRAINING = "training"
EVALUATION = "evaluation"
OUTPUT = "output"
#: Sections of a file whose keys apply to all models.
SECTIONS = (TRAINING, EVALUATION)
#: Keys of a group that list its models. All others say how they are trained and evaluated.
KEYS_OF_MODELS = ("methods", "train_lengths", "seeds", "train_on")


@dataclass(frozen=True, config=STRICT)
class Corpus:
    """Corpus to train and evaluate on."""

    name: Name = yaml_key("name of the corpus in tables, and of its folder")
    text: ListOrItem[str] = yaml_key(
        "files, archives, or folders, as in `alibi-fairseq prepare text`", (), set_by="TEXT"
    )
    data: str | None = yaml_key(
        "folder of fairseq's binary data, instead of text", None, set_by="DATA"
    )
    tokenizer: Literal["sentencepiece", "words"] = option(
        "tokenizer: a BPE trained on the text, or words separated by whitespace",
        "sentencepiece",
        group=TEXT,
    )
    vocabulary: int | None = option(
        "number of dictionary entries (default: depends on the size of the text)",
        None,
        flag="--vocab-size",
        metavar="N",
        group=TEXT,
    )
    held_out: Annotated[Float, Field(gt=0, le=25)] = option(
        "percentage of the text held out for validation; the same percentage is held out for "
        "testing",
        5.0,
        metavar="PERCENT",
        group=TEXT,
    )
    probe: ProbeName | None = yaml_key(
        "synthetic task to train and test on", None, set_by="--probes"
    )

    def __post_init__(self):
        if ":" in self.name:
            raise ValueError(
                f"the corpus name '{self.name}' contains ':', at which fairseq splits paths of "
                "data; rename the corpus, or the text if the name is from it"
            )
        if self.name in RESERVED_NAMES:
            raise ValueError(
                f"the output folder has a file or folder '{self.name}' for other purposes; rename "
                "the corpus, or the text if the name is from it"
            )
        if self.probe and not PROBES[self.probe].in_text:
            if self.text or self.data:
                raise ValueError(f"the probe '{self.probe}' takes no text")
        elif bool(self.text) == bool(self.data):
            raise ValueError("needs either 'text' or 'data'")
        for name in ("tokenizer", "vocabulary", "held_out"):
            if self.data and getattr(self, name) != getattr(Corpus, name):
                raise ValueError(
                    f"'data' is binary data already, so '{name}' has no effect. Remove '{name}', "
                    "or give 'text' instead of 'data'"
                )


@dataclass(frozen=True, config=STRICT)
class Evaluation:
    """Evaluation of models at several lengths, as trained and with different options."""

    eval_lengths: NonEmptyListOrItem[EvalLength] = option(
        "evaluation lengths in tokens; 4x: four training lengths; 1x+50: 50 tokens more than the "
        "training length",
        (128, 256, 512, 1024),
        flag="--lengths",
        type=names,
        metavar="L,…",
        group=EVALUATION,
    )
    strides: NonEmptyListOrItem[Stride] = same_option(SweepConfig, "strides", EVALUATION)
    sliding: dict[PositiveInt, NonEmptyListOrItem[EvalLength]] = yaml_key(
        "additional strides, each with its evaluation lengths", {}, group=EVALUATION
    )
    subset: str = option("split to evaluate on", "valid", metavar="SPLIT", group=EVALUATION)
    per_document: DocumentBoundaries | None = same_option(SweepConfig, "per_document", EVALUATION)
    score_from: TokenCount | None = same_option(SweepConfig, "score_from", EVALUATION)
    score_to: TokenCount | None = same_option(SweepConfig, "score_to", EVALUATION)
    variants: dict[Method, dict[Name, dict[str, Any]]] = yaml_key(
        "additional evaluations with different model options; keyed by method, then by a name "
        "that you choose for the variant; `train_length` stands for the training length",
        {},
        group=EVALUATION,
    )
    also_on: ListOrItem[str] = yaml_key(
        "names of corpora on which every model is evaluated as well, whichever corpus it was "
        "trained on",
        (),
        group=EVALUATION,
    )
    methods: Annotated[ListOrItem[Method], BeforeValidator(as_methods)] = yaml_key(
        "only in an entry of `evaluations`: the methods that the entry evaluates (default: all)",
        (),
        group=EVALUATION,
    )
    train_lengths: ListOrItem[PositiveInt] = yaml_key(
        "only in an entry of `evaluations`: the training lengths of the models that the entry "
        "evaluates (default: all)",
        (),
        group=EVALUATION,
    )

    def includes(self, method: MethodSpec, train_length: int) -> bool:
        """Return True if it evaluates models of a method with a training length."""
        has_method = not self.methods or method in self.methods
        return has_method and (not self.train_lengths or train_length in self.train_lengths)

    def sweep_config(self, train_length: int, overrides: dict | None = None) -> SweepConfig:
        """Return the settings of ``eval`` for a model as it was trained.

        Args:
            overrides: options of the model that are changed all the same.
        """
        return SweepConfig(
            lengths=tokens_at(self.eval_lengths, train_length),
            strides=self.strides,
            splits=(self.subset,),
            per_document=self.per_document,
            score_from=self.score_from,
            score_to=self.score_to,
            overrides=overrides,
        )


@dataclass(frozen=True, config=STRICT)
class ModelGroup:
    """Models that are trained and evaluated in the same way."""

    methods: Annotated[Methods, Field(validate_default=True)] = option(
        "position methods (`alibi-fairseq models` lists their names); all: the seven that predate "
        "or appear in the ALiBi paper; later: those published since; A+B: A and B in alternate "
        "layers; A/OPTION=VALUE: A with an option of the model",
        ("alibi", "sinusoidal"),
        type=names,
        metavar="A,B,…",
        group=MODELS,
    )
    train_lengths: NonEmptyListOrItem[PositiveInt] = option(
        "training lengths in tokens", (128,), type=names, metavar="L,…", group=MODELS
    )
    seeds: NonEmptyListOrItem[int] = option(
        "seeds for initialization and data order", (1,), type=names, metavar="N,…", group=MODELS
    )
    arch: str = option(
        "model name; `alibi-fairseq models` lists all",
        "alibi_lm_tiny",
        metavar="NAME",
        group=MODELS,
    )
    user_dir: str | None = yaml_key(
        "folder of a plugin with position methods, or several separated by commas; a YAML file "
        "needs the option as well",
        None,
        set_by="--user-dir",
        group=MODELS,
    )
    train_on: ListOrItem[str] = yaml_key(
        "names of the corpora to train on (default: all)", (), group=MODELS
    )
    updates: PositiveInt = option(
        "optimizer updates of each run", 1000, metavar="N", group=TRAINING
    )
    tokens_per_update: PositiveInt = option(
        "tokens per update at every training length", 4096, metavar="N", group=TRAINING
    )
    batches_per_update: PositiveInt = yaml_key(
        "number of batches whose gradients are accumulated for an update; more batches need less "
        "memory",
        1,
        group=TRAINING,
    )
    lr: NonEmptyListOrItem[LearningRate] = option(
        "peak learning rate of Adam; the warm-up takes a sixth of the updates, at most 4,000; with "
        "a list, the rate is tuned on the validation split for each method and training length",
        (0.001,),
        type=names,
        metavar="X,…",
        group=TRAINING,
    )
    lr_schedule: Literal["inverse_sqrt", "linear"] = option(
        "learning rate after the warm-up: inverse_sqrt, or linear decay to zero at the last update",
        "inverse_sqrt",
        group=TRAINING,
    )
    tune_share: Annotated[Float, Field(gt=0, le=1)] = option(
        "updates of a learning-rate trial, as a fraction of a run's updates",
        0.25,
        metavar="X",
        group=TRAINING,
    )
    train_flags: Flags = option(
        "additional options of fairseq-train, as one string", (), metavar="FLAGS", group=TRAINING
    )
    method_flags: dict[Method, Flags] = yaml_key(
        "additional options of `fairseq-train` for one method; `{train_length}` and "
        "`{0.75*train_length}` stand for numbers of tokens",
        {},
        group=TRAINING,
    )
    evaluations: Annotated[tuple[Evaluation, ...], Field(min_length=1)] = yaml_key(
        "list of evaluations, each with keys of its own that replace those of all evaluations",
        (Evaluation(),),
        group=EVALUATION,
    )

    def __post_init__(self):
        for length in self.train_lengths:
            self._check_tokens_per_update(length)
        for length, method in itertools.product(self.train_lengths, self.methods):
            evaluations = self.select_evaluations(method, length)
            if not evaluations:
                raise ValueError(
                    f"evaluations: none includes {method.notation} with the training length "
                    f"{length}, which would be trained for nothing; add one, or remove the model"
                )
            _check_document_losses(evaluations)
            strides = {stride for evaluation in evaluations for stride in evaluation.strides}
            if "transformer_xl" in method.names and strides != {"full"}:
                raise ValueError(
                    "strides: the memory of transformer_xl requires windows that do not overlap; "
                    "remove transformer_xl, or use sliding, which leaves it out"
                )

    def select_evaluations(self, method: MethodSpec, train_length: int) -> list[Evaluation]:
        """Return the evaluations of the models of a method with a training length."""
        return [each for each in self.evaluations if each.includes(method, train_length)]

    @property
    def also_on(self) -> set[str]:
        """Names of the corpora on which models are evaluated as well."""
        return {name for evaluation in self.evaluations for name in evaluation.also_on}

    def _check_tokens_per_update(self, train_length: int) -> None:
        """Raise ValueError if an update cannot consist of equal batches of whole samples."""
        unit = train_length * self.batches_per_update
        if self.tokens_per_update % unit == 0:
            return
        next_multiple = (self.tokens_per_update // unit + 1) * unit
        batches = ""
        if self.batches_per_update > 1:
            batches = f" times {self.batches_per_update} batches"
        raise ValueError(
            f"tokens_per_update: {self.tokens_per_update} is not a multiple of the training length "
            f"{train_length}{batches}, so runs would not read the same number of tokens; use "
            f"{next_multiple}, for example"
        )

    @property
    def tokens_per_batch(self) -> int:
        """Number of tokens whose gradients are computed at once."""
        return self.tokens_per_update // self.batches_per_update


def _check_document_losses(evaluations: Iterable[Evaluation]) -> None:
    """Check that a model's results can hold the losses of documents from all its evaluations.

    Evaluations of a whole split have equal results, whatever its documents are, so the results file
    keeps the losses of the documents from the last one.

    Raises:
        ValueError: two of them have different documents.
    """
    boundaries: dict[str, set[str]] = {}
    for evaluation in evaluations:
        has_range = evaluation.score_from is not None or evaluation.score_to is not None
        if evaluation.per_document is not None and not has_range:
            boundaries.setdefault(evaluation.subset, set()).add(evaluation.per_document)
    for split, kinds in boundaries.items():
        if len(kinds) > 1:
            raise ValueError(
                f"evaluations: two of the split {split} have different per_document "
                f"({', '.join(sorted(kinds))}); keep one, or set score_from in both"
            )


class Model(NamedTuple):
    """Model to train."""

    group: ModelGroup
    corpus: Corpus
    method: MethodSpec
    train_length: int
    seed: int


def share_keys(values: Mapping[str, Any], own: Collection[str]) -> dict[str, Any]:
    """Return the values of an experiment with all keys of each group and each evaluation in it.

    Keys next to ``models``, or in the sections ``training`` and ``evaluation``, apply to every
    group that does not have them itself. In the same way, keys of an evaluation next to
    ``evaluations`` apply to every evaluation in that list.

    Args:
        own: keys of the experiment itself.

    Raises:
        ValueError: a section has no keys.
    """
    shared: dict[str, Any] = {}
    experiment: dict[str, Any] = {}
    for name, value in values.items():
        if name in SECTIONS:
            if not isinstance(value, Mapping):
                raise ValueError(f"{name} must be keys with their values")
            shared.update(value)
        elif name in own:
            experiment[name] = value
        else:
            shared[name] = value
    groups = _with_shared(experiment.get("models", [{}]), shared)
    if isinstance(groups, list):
        groups = [_share_evaluation_keys(group) for group in groups]
    return {**experiment, "models": groups}


def _share_evaluation_keys(group: Any) -> Any:
    """Return the values of a group with its keys of an evaluation in each of its evaluations."""
    if not isinstance(group, dict):
        return group
    names = {field.name for field in fields(Evaluation)}
    names -= {field.name for field in fields(ModelGroup)}
    shared = {name: value for name, value in group.items() if name in names}
    others = {name: value for name, value in group.items() if name not in names}
    return {**others, "evaluations": _with_shared(group.get("evaluations", [{}]), shared)}


def _with_shared(items: Any, shared: Mapping[str, Any]) -> Any:
    """Return a list of mappings with shared keys, which their own keys replace.

    Anything else is returned as it is: pydantic reports it.
    """
    if not isinstance(items, list):
        return items
    return [{**shared, **item} if isinstance(item, dict) else item for item in items]


@dataclass(frozen=True, config=STRICT, kw_only=True)
class ExperimentConfig:
    """Models to train on corpora, and their evaluations.

    Keys of :class:`ModelGroup` and :class:`Evaluation` next to ``corpora`` apply to all models.
    Each mapping in ``models`` is a group of models with keys of its own; without any, there is one
    group. The same goes for ``evaluations``.
    """

    corpora: Annotated[tuple[Corpus, ...], Field(min_length=1)] = yaml_key(
        "corpora to train and evaluate on"
    )
    models: Annotated[tuple[ModelGroup, ...], Field(min_length=1)] = yaml_key(
        "groups of models, each with keys of its own that replace those of all models"
    )
    title: str = option(
        "title of the table and the figure", DEFAULT_TITLE, metavar="TEXT", group=OUTPUT
    )

    @model_validator(mode="before")
    @classmethod
    def _with_shared_keys(cls, values: Any) -> Any:
        """Return the values with all keys that the groups share in each of them."""
        if not isinstance(values, Mapping):  # of a call in Python
            return values
        return share_keys(values, [field.name for field in fields(cls)])

    def __post_init__(self):
        names = [corpus.name for corpus in self.corpora]
        if len(set(names)) < len(names):
            raise ValueError("corpora: two of them have the same name")
        for group in self.models:
            unknown = {*group.train_on, *group.also_on} - {*names}
            if unknown:
                raise ValueError(f"there is no corpus '{min(unknown)}'")
            for corpus in self.corpora:
                if corpus.probe and corpus.name in group.also_on:
                    raise ValueError(
                        f"also_on: '{corpus.name}' is a probe, on which only the models trained on "
                        "it are evaluated; remove it"
                    )
            for corpus, length in itertools.product(self.corpora, group.train_lengths):
                if corpus.probe:
                    PROBES[corpus.probe].check(length)
        self._check_equal_groups()

    def _check_equal_groups(self) -> None:
        """Raise ValueError if two groups have a model, but train or evaluate it differently.

        A model has one folder, so a second version of it could not be kept. Seeds share the trials
        of the learning rates and a row of the costs, so only their evaluations may differ.
        """
        groups_by_seed: dict[tuple, ModelGroup] = {}
        first_groups: dict[tuple, ModelGroup] = {}
        for group in self.models:
            for model in self._expand_group(group):
                first = first_groups.setdefault(model[1:-1], group)
                of_seed = groups_by_seed.setdefault(model[1:], group)
                for field in fields(ModelGroup):
                    if field.name in KEYS_OF_MODELS:
                        continue
                    other = of_seed if field.name == "evaluations" else first
                    if getattr(other, field.name) != getattr(group, field.name):
                        raise ValueError(
                            f"models: {model.method.notation} with the training length "
                            f"{model.train_length} is in two groups with different {field.name}. "
                            "Keep it in one group, or use another file for the other group"
                        )

    def _expand_group(self, group: ModelGroup) -> Iterator[Model]:
        """Yield the models of a group, all of the first seed first."""
        corpora = []
        for corpus in self.corpora:
            if not group.train_on or corpus.name in group.train_on:
                corpora.append(corpus)
        for seed, corpus, train_length, method in itertools.product(
            group.seeds, corpora, group.train_lengths, group.methods
        ):
            yield Model(group, corpus, method, train_length, seed)

    def select_corpora(self, group: ModelGroup) -> list[Corpus]:
        """Return the corpora that the models of a group are trained or evaluated on."""
        names = {*group.train_on, *group.also_on}
        return [corpus for corpus in self.corpora if not group.train_on or corpus.name in names]

    def all_models(self) -> list[Model]:
        """Return the models to train, each once, the most important first."""
        models: dict[tuple, Model] = {}
        for group in self.models:
            for model in self._expand_group(group):
                models.setdefault(model[1:], model)
        return list(models.values())

    def check_method_keys(self) -> None:
        """Check that each method that options or an evaluation name is one of the models'.

        Raises:
            UserInputError: no model has the method, so its options have no effect.
        """
        for group in self.models:
            for evaluation in group.evaluations:
                self._check_methods("variants", evaluation.variants)
                self._check_methods("evaluations", evaluation.methods)
            self._check_methods("method_flags", group.method_flags)

    def _check_methods(self, key: str, methods: Iterable[MethodSpec]) -> None:
        """Raise UserInputError if no model has one of the methods in the value of a key."""
        for method in methods:
            if method not in self.methods:
                used = sorted(used_method.notation for used_method in self.methods)
                raise UserInputError(
                    f"{key}: '{method.notation}' is not one of the methods ({', '.join(used)}), so "
                    "it has no effect. Write it as in methods, or remove it."
                )

    def with_plugin(self, user_dir: str | None) -> ExperimentConfig:
        """Return the same experiment with the plugin in a folder."""
        groups = tuple(replace(group, user_dir=user_dir) for group in self.models)
        return replace(self, models=groups)

    @property
    def methods(self) -> tuple[MethodSpec, ...]:
        """Position methods of all models."""
        return tuple(dict.fromkeys(method for group in self.models for method in group.methods))

    @property
    def train_lengths(self) -> tuple[int, ...]:
        """Training lengths of all models."""
        return tuple(dict.fromkeys(n for group in self.models for n in group.train_lengths))

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seeds of all models."""
        return tuple(dict.fromkeys(seed for group in self.models for seed in group.seeds))
