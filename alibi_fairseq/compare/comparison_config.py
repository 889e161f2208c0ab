"""Configuration of a comparison: corpora, models to train, and evaluations.

The attributes of the classes are the keys of the YAML file. :mod:`.config_values` validates their
values, and :mod:`.config_files` reads the file.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence
from dataclasses import field
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from ..data.probes import PROBES
from ..errors import UserInputError
from ..positions.spec import MethodSpec
from ..results.manifest import Name
from .config_values import (
    Flags,
    Float,
    Int,
    LearningRate,
    Length,
    ListOrItem,
    Method,
    Methods,
    NonEmptyListOrItem,
    PositiveInt,
    Stride,
)

DEFAULT_TITLE = "Perplexity by evaluation length"
#: Axes of a comparison in their default order of importance. The first axis varies slowest.
AXES = ("seeds", "corpora", "train_lengths", "methods")
#: Files and folders of the output folder, which no corpus can have as its folder.
RESERVED_NAMES = ("lock", "jobs", "vocabulary", "comparison.yaml", "results.json", "speeds.json")
#: Pydantic settings of all configurations. Unknown keys are rejected. Numbers are accepted as
#: strings, because YAML reads the stride 64 or the corpus name 2024 as a number.
STRICT = ConfigDict(extra="forbid", coerce_numbers_to_str=True)


@dataclass(frozen=True, config=STRICT)
class ExcerptConfig:
    """Size of an excerpt of a prepared corpus.

    Attributes:
        train: tokens of the training split.
        documents: number of documents of the test split.
        tokens: tokens of each of these documents; shorter documents are left out.
        valid: tokens of the validation split.
    """

    train: PositiveInt
    documents: Annotated[Int, Field(ge=2)]
    tokens: PositiveInt
    valid: PositiveInt = 32_768


@dataclass(frozen=True, config=STRICT)
class CorpusConfig:
    """Corpus to train and evaluate on.

    Attributes:
        name: name of the corpus in tables, and of its folder.
        text: files, archives, or folders, as in ``alibi-fairseq prepare text``.
        data: folder of fairseq's binary data, instead of text.
        tokenizer: ``sentencepiece`` or ``words``.
        vocabulary: number of dictionary entries (default: depends on the size of the text).
        probe: synthetic task to train and test on.
        documents: ``files``: each file is a document; ``titles``: a title begins a document, as in
            WikiText's ``*.tokens`` files, and repeated documents are kept once.
        sample: bytes of text to prepare, in documents drawn by their hash, repeated ones once
            (default: all of the text).
        excerpt: size of the excerpt to train and test on (default: the whole text); ``data``, if
            given, must be this excerpt already.
    """

    name: Name
    text: ListOrItem[str] = ()
    data: str | None = None
    tokenizer: Literal["sentencepiece", "words"] = Field(
        default="sentencepiece",
        description="tokenizer: a BPE trained on the text, or words separated by whitespace",
    )
    vocabulary: Int | None = Field(
        default=None,
        description="number of dictionary entries (default: depends on the size of the text)",
    )
    probe: Literal["copy", "passkey", "mqar"] | None = None
    documents: Literal["files", "titles"] = "files"
    sample: PositiveInt | None = None
    excerpt: ExcerptConfig | None = None

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
        if self.data:
            self._check_binary_data()

    def _check_binary_data(self) -> None:
        """Check that no key would change data that is already prepared.

        Raises:
            ValueError: a key applies only to text. With an excerpt, ``documents`` and ``sample``
                are allowed, because they describe the text that the excerpt was made from.
        """
        keys = self.tokenizer_keys
        if not self.excerpt:
            if self.documents != "files":
                keys.append("documents")
            if self.sample is not None:
                keys.append("sample")
        if keys:
            raise ValueError(
                f"'data' is binary data already, so '{keys[0]}' has no effect. Remove "
                f"'{keys[0]}', or give 'text' instead of 'data'"
            )

    @property
    def tokenizer_keys(self) -> list[str]:
        """Keys of the tokenizer and its vocabulary that differ from their defaults."""
        keys = []
        if self.tokenizer != "sentencepiece":
            keys.append("tokenizer")
        if self.vocabulary is not None:
            keys.append("vocabulary")
        return keys


class ModelSpec(NamedTuple):
    """Model to train."""

    corpus: str
    method: MethodSpec
    train_length: int
    seed: int


@dataclass(frozen=True, config=STRICT)
class ComparisonConfig:
    """Models to train, and their evaluations.

    Attributes with a description are options of ``alibi-fairseq compare``; the others are YAML
    only.

    Attributes:
        corpora: corpora to train and evaluate on.
        user_dir: folder of a plugin with position methods, which is also passed as ``--user-dir``.
        train_on: names of the corpora to train on (default: all).
        also_on: names of corpora on which every model is evaluated, whichever corpus it was trained
            on.
        shared_vocabulary: number of entries of one sentencepiece dictionary that all texts share.
        batches_per_update: number of batches whose gradients are accumulated for an update; more
            batches need less memory.
        order: order of the runs, outermost loop first.
        sliding: additional strides, each with its evaluation lengths.
        variants: additional evaluations with other options of the model, by method and name of the
            variant; ``train_length`` stands for the training length.
        method_flags: additional options of ``fairseq-train`` for one method; ``{train_length}`` and
            ``{0.75*train_length}`` stand for numbers of tokens.
    """

    corpora: Annotated[tuple[CorpusConfig, ...], Field(min_length=1)]
    methods: Methods = Field(
        ("alibi", "sinusoidal"),
        validate_default=True,
        description="position methods (`alibi-fairseq models` lists their names); all: the seven "
        "that predate or appear in the ALiBi paper; later: the seven published since; A+B: A and B "
        "in alternate layers; A/OPTION=VALUE: A with an option of the model",
    )
    train_lengths: NonEmptyListOrItem[PositiveInt] = Field(
        (128,), description="training lengths in tokens"
    )
    eval_lengths: NonEmptyListOrItem[Length] = Field(
        (128, 256, 512, 1024),
        description="evaluation lengths in tokens; 4x: four training lengths; 1x+50: 50 tokens "
        "more than the training length",
    )
    seeds: NonEmptyListOrItem[Int] = Field(
        (1,), description="seeds for initialization and data order"
    )
    strides: NonEmptyListOrItem[Stride] = Field(
        ("full",),
        description="tokens scored per window; full: the evaluation length, in windows that do not "
        "overlap",
    )
    arch: str = Field("alibi_lm_tiny", description="model name; `alibi-fairseq models` lists all")
    updates: PositiveInt = Field(1000, description="optimizer updates of each run")
    tokens_per_update: PositiveInt = Field(
        4096, description="tokens per update at every training length"
    )
    lr: NonEmptyListOrItem[LearningRate] = Field(
        (0.001,),
        description="peak learning rate of Adam; the warm-up takes a sixth of the updates, at most "
        "4,000; a list is tuned for each method and training length on the validation split",
    )
    lr_schedule: Literal["inverse_sqrt", "linear"] = Field(
        "inverse_sqrt",
        description="learning rate after the warm-up: inverse_sqrt, or linear decay to zero at the "
        "last update",
    )
    tune_share: Annotated[Float, Field(gt=0, le=1)] = Field(
        0.25, description="updates of a learning-rate trial, as a fraction of a run's updates"
    )
    train_flags: Flags = Field((), description="additional options of fairseq-train, as one string")
    subset: str = Field("valid", description="split to evaluate on")
    score_from: PositiveInt | None = Field(
        None,
        description="number of tokens at the start of the split, or of each document, that are "
        "not scored",
    )
    score_to: PositiveInt | None = Field(
        None,
        description="number of tokens at the start of the split, or of each document, after which "
        "scoring ends",
    )
    per_document: Literal["empty-lines", "titles"] | None = Field(
        None,
        description="record the loss of each document, too; empty-lines: an empty line ends a "
        "document; titles: the next title ends it, as in WikiText",
    )
    title: str = Field(DEFAULT_TITLE, description="title of table and figure")
    user_dir: str | None = None
    train_on: ListOrItem[str] = ()
    also_on: ListOrItem[str] = ()
    shared_vocabulary: PositiveInt | None = None
    batches_per_update: PositiveInt = 1
    order: NonEmptyListOrItem[str] = AXES
    sliding: dict[PositiveInt, NonEmptyListOrItem[Length]] = field(default_factory=dict)
    variants: dict[Method, dict[Name, dict[str, Any]]] = field(default_factory=dict)
    method_flags: dict[Method, Flags] = field(default_factory=dict)

    def __post_init__(self):
        names = [corpus.name for corpus in self.corpora]
        if len(set(names)) < len(names):
            raise ValueError("corpora: two of them have the same name")
        if sorted(self.order) != sorted(AXES):
            raise ValueError(f"order: must name {', '.join(AXES)}, each once")
        unknown = set(self.train_on + self.also_on) - set(names)
        if unknown:
            raise ValueError(f"there is no corpus '{min(unknown)}'")
        has_text = any(corpus.text for corpus in self.corpora)
        if self.also_on and has_text and not self.shared_vocabulary:
            raise ValueError("also_on: the texts need one dictionary; give shared_vocabulary")
        for corpus in self.corpora:
            if self.shared_vocabulary and corpus.tokenizer_keys:
                key = corpus.tokenizer_keys[0]
                raise ValueError(
                    f"shared_vocabulary: it replaces the {key} of the corpus '{corpus.name}'. "
                    f"Remove '{key}' or shared_vocabulary"
                )
            if corpus.probe:
                for length in self.train_lengths:
                    PROBES[corpus.probe].check(length)
        for length in self.train_lengths:
            self._check_tokens_per_update(length)
        has_memory = any("transformer_xl" in method.names for method in self.methods)
        if has_memory and any(stride != "full" for stride in self.strides):
            raise ValueError(
                "strides: the memory of transformer_xl requires windows that do not overlap; "
                "remove transformer_xl, or use sliding, which leaves it out"
            )

        for stride in self.sliding:
            if str(stride) in self.strides:
                raise ValueError(f"sliding: the stride {stride} is also in strides; remove one")
        if "," in self.subset:
            raise ValueError(f"subset: '{self.subset}' must be one split, such as valid or test")

    def check_method_keys(self, methods: Collection[MethodSpec]) -> None:
        """Check that each key of :attr:`variants` and :attr:`method_flags` is a method in use.

        Args:
            methods: methods of this comparison, and of others that share the keys.

        Raises:
            UserInputError: no model has the method of a key, so its options have no effect.
        """
        for name in ("variants", "method_flags"):
            for method in getattr(self, name):
                if method not in methods:
                    used = sorted(other.notation for other in methods)
                    raise UserInputError(
                        f"{name}: '{method.notation}' is not one of the methods "
                        f"({', '.join(used)}), so it has no effect. Write it as in methods, or "
                        "remove it."
                    )

    def _check_tokens_per_update(self, train_length: int) -> None:
        """Check that an update can consist of equal batches of whole samples.

        Raises:
            ValueError: the number of tokens per update is not a multiple of such a batch.
        """
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

    def model_specs(self) -> Iterator[ModelSpec]:
        """Yield the models to train, the most important first."""
        corpora = [corpus.name for corpus in self.corpora]
        if self.train_on:
            corpora = [name for name in corpora if name in self.train_on]
        values: dict[str, Sequence] = {
            "seeds": self.seeds,
            "corpora": corpora,
            "train_lengths": self.train_lengths,
            "methods": self.methods,
        }
        axes = [values[axis] for axis in self.order]
        for combination in itertools.product(*axes):
            chosen = dict(zip(self.order, combination))
            yield ModelSpec(
                corpus=chosen["corpora"],
                method=chosen["methods"],
                train_length=chosen["train_lengths"],
                seed=chosen["seeds"],
            )

    @property
    def tokens_per_batch(self) -> int:
        """Number of tokens whose gradients are computed at once."""
        return self.tokens_per_update // self.batches_per_update

    @property
    def tokens(self) -> int:
        """Number of tokens read by each run."""
        return self.updates * self.tokens_per_update
