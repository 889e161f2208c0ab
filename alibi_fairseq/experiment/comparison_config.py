"""Configuration of a comparison: corpora, models to train, and evaluations.

The attributes of the classes are the keys of the YAML file. :mod:`.values` validates their
values, and :mod:`.config_files` reads the file.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from dataclasses import field
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from ..data.probes import PROBES
from ..errors import UserInputError
from ..positions.spec import MethodSpec
from ..results.manifest import Name
from .values import (
    Flags,
    Float,
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
#: Files and folders of the output folder, which no corpus can have as its folder.
RESERVED_NAMES = ("lock", "jobs", "comparison.yaml", "results.json")
#: Pydantic settings of all configurations. Unknown keys are rejected. Numbers are accepted as
#: strings, because YAML reads the stride 64 or the corpus name 2024 as a number.
STRICT = ConfigDict(extra="forbid", coerce_numbers_to_str=True)


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
    """

    name: Name
    text: ListOrItem[str] = ()
    data: str | None = None
    tokenizer: Literal["sentencepiece", "words"] = Field(
        default="sentencepiece",
        description="tokenizer: a BPE trained on the text, or words separated by whitespace",
    )
    vocabulary: int | None = Field(
        default=None,
        description="number of dictionary entries (default: depends on the size of the text)",
    )
    probe: Literal["copy", "passkey", "mqar"] | None = None

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
        for key, default in (("tokenizer", "sentencepiece"), ("vocabulary", None)):
            if self.data and getattr(self, key) != default:
                raise ValueError(
                    f"'data' is binary data already, so '{key}' has no effect. Remove '{key}', or "
                    "give 'text' instead of 'data'"
                )


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
        user_dir: folder of a plugin with position methods, or several separated by commas; also
            passed as ``--user-dir``.
        batches_per_update: number of batches whose gradients are accumulated for an update; more
            batches need less memory.
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
        "that predate or appear in the ALiBi paper; later: the nine published since; A+B: A and B "
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
    seeds: NonEmptyListOrItem[int] = Field(
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
    batches_per_update: PositiveInt = 1
    sliding: dict[PositiveInt, NonEmptyListOrItem[Length]] = field(default_factory=dict)
    variants: dict[Method, dict[Name, dict[str, Any]]] = field(default_factory=dict)
    method_flags: dict[Method, Flags] = field(default_factory=dict)

    def __post_init__(self):
        names = [corpus.name for corpus in self.corpora]
        if len(set(names)) < len(names):
            raise ValueError("corpora: two of them have the same name")
        for corpus in self.corpora:
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
                    used = sorted(used_method.notation for used_method in methods)
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
        """Yield the models to train, all of the first seed first."""
        for seed, corpus, train_length, method in itertools.product(
            self.seeds, self.corpora, self.train_lengths, self.methods
        ):
            yield ModelSpec(corpus.name, method, train_length, seed)

    @property
    def tokens_per_batch(self) -> int:
        """Number of tokens whose gradients are computed at once."""
        return self.tokens_per_update // self.batches_per_update

    @property
    def tokens(self) -> int:
        """Number of tokens read by each run."""
        return self.updates * self.tokens_per_update
