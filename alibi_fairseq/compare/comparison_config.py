"""What a comparison compares, from options or YAML, and its cells in the order of importance."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import yaml
from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
)
from pydantic.dataclasses import dataclass

from ..data.probes import PROBES
from ..errors import UserInputError, requirement
from ..files import open_input
from ..positions import METHODS, known_method
from ..results.manifest import Name

#: The methods that ``all`` stands for: those of the paper's tables, learned, Transformer-XL and none.
PAPER_METHODS = ("sinusoidal", "learned", "rotary", "t5", "alibi", "transformer_xl", "none")
#: The axes of a comparison in the order of importance: the first varies slowest.
AXES = ("seeds", "corpora", "train_lengths", "methods")
#: Options of fairseq-train that the description determines.
RESERVED = (
    *("--arch", "--position-method", "--tokens-per-sample", "--max-tokens", "--max-update"),
    *("--seed", "--save-dir", "--lr", "--lr-scheduler", "--warmup-updates", "--user-dir"),
)
#: How a description is read: unknown keys are refused.
STRICT = ConfigDict(extra="forbid", coerce_numbers_to_str=True)


def as_list(value: object) -> list:
    """One value stands for a list of it; a value given twice counts once."""
    values = value if isinstance(value, list | tuple) else [value]
    return [each for number, each in enumerate(values) if each not in values[:number]]


def as_methods(value: object) -> list:
    """Names of methods, of which ``all`` and ``later`` stand for several."""
    later = [name for name in METHODS if name not in PAPER_METHODS]
    groups = {"all": PAPER_METHODS, "later": later}
    return as_list([name for each in as_list(value) for name in groups.get(str(each), [each])])


def as_flags(value: Any) -> list[str]:
    """Options of fairseq-train, which YAML may give as one string."""
    flags = shlex.split(value) if isinstance(value, str) else list(value)
    given = [str(flag).partition("=")[0] for flag in flags]
    if taken := [flag for flag in RESERVED if flag in given]:
        raise ValueError(f"the comparison itself sets {', '.join(taken)}")
    return flags


def tokens_at(lengths: Iterable[int | str], train_length: int) -> tuple[int, ...]:
    """Tokens of windows, which may be given as ``4x`` the training length or ``1x+50``, 50 more."""
    found: dict[int, None] = {}
    for length in lengths:
        times, _, more = str(length).rpartition("x")
        found[int(times or 0) * train_length + int(more or 0)] = None
    return tuple(found)


def at_length(text: str, train_length: int) -> str:
    """A text with the training length, or a part of it, in place of ``{0.75*train_length}``."""
    return re.sub(
        r"\{(?:(\d*\.?\d+)\*)?train_length\}",
        lambda found: str(round(float(found[1] or 1) * train_length)),
        text,
    )


def as_length(value: object) -> int | str:
    """Tokens of a window, or a multiple of the training length and perhaps tokens more, as text."""
    found = re.fullmatch(r"[1-9]\d*|[1-9]\d*x(\+[1-9]\d*)?", str(value))
    if found is None:
        raise ValueError(f"{str(value)[:60]!r} must be a number of tokens, or like 4x or 1x+50")
    return str(value) if "x" in found[0] else int(found[0])


PositiveInt = Annotated[int, Field(ge=1)]
Length = Annotated[int | str, BeforeValidator(as_length)]
Rate = Annotated[float, Field(gt=0)]
Each = TypeVar("Each")
AnyNumber = Annotated[tuple[Each, ...], BeforeValidator(as_list)]
Several = Annotated[tuple[Each, ...], BeforeValidator(as_list), Field(min_length=1)]
Method = Annotated[str, AfterValidator(known_method)]
Flags = Annotated[tuple[str, ...], BeforeValidator(as_flags)]


@dataclass(frozen=True, config=STRICT)
class ExcerptConfig:
    """What is kept of a prepared text."""

    train: PositiveInt  # tokens
    documents: Annotated[int, Field(ge=2)]  # of the test split
    tokens: PositiveInt  # at the beginning of each of these; shorter documents are left out
    valid: PositiveInt = 32_768  # tokens


@dataclass(frozen=True, config=STRICT)
class CorpusConfig:
    """One text to train and evaluate on."""

    name: Name  # its folder, and its name in tables
    text: AnyNumber[str] = ()  # files, archives or folders, as `prepare text` reads them
    data: str | None = None  # a folder of fairseq's binary data, instead of text
    tokenizer: str = Field(default="sentencepiece", description="of text: sentencepiece or words")
    vocabulary: int | None = Field(
        default=None, description="of text: dictionary entries; without it by size"
    )
    probe: Literal["copy", "passkey"] | None = None  # train and test on this instead
    documents: Literal["files", "titles"] = "files"  # titles: as in WikiText's *.tokens files
    sample: PositiveInt | None = (
        None  # bytes of text to prepare, in documents drawn by their contents
    )
    excerpt: ExcerptConfig | None = None

    def __post_init__(self):
        if self.probe and not PROBES[self.probe].in_text:
            if self.text or self.data:
                raise ValueError(f"the probe '{self.probe}' takes no text")
        elif bool(self.text) == bool(self.data):
            raise ValueError("needs either 'text' or 'data'")


class ModelSpec(NamedTuple):
    """A model to train: on which corpus, with which method, training length and seed."""

    corpus: str
    method: str
    train_length: int
    seed: int


@dataclass(frozen=True, config=STRICT)
class ComparisonConfig:
    """Which models to train, and at which lengths to evaluate each of them."""

    corpora: Annotated[tuple[CorpusConfig, ...], Field(min_length=1)]
    methods: Annotated[Several[Method], BeforeValidator(as_methods)] = Field(
        ("alibi", "sinusoidal"),
        description="position methods; 'all': the seven published up to ALiBi; 'later': the others",
    )
    train_lengths: Several[PositiveInt] = Field((128,), description="tokens per sample in training")
    eval_lengths: Several[Length] = Field(
        (128, 256, 512, 1024),
        description="window lengths in evaluation; 4x: times the training length, 1x+50: 50 more",
    )
    seeds: Several[int] = Field((1,), description="of initialization and data order")
    strides: Several[str] = Field(
        ("full",), description="tokens that each window scores; full: all"
    )
    arch: str = Field("alibi_lm_tiny", description="a model of `alibi-fairseq models`")
    updates: PositiveInt = Field(1000, description="optimizer steps of each run")
    hours: Annotated[float, Field(gt=0)] | None = Field(
        None, description="as many updates as fit into them on this machine, instead of updates"
    )
    tokens_per_update: PositiveInt = Field(
        4096, description="of each run, whatever its training length"
    )
    lr: Several[Rate] = Field(
        (0.001,),
        description="peak learning rate of Adam, reached after a sixth of the updates; of several "
        "the best by validation is chosen for each method and training length",
    )
    lr_schedule: Literal["inverse_sqrt", "linear"] = Field(
        "inverse_sqrt",
        description="learning rate after the warm-up: inverse_sqrt, or linear decay to zero at the "
        "last update",
    )
    tune_share: Annotated[float, Field(gt=0, le=1)] = Field(
        0.25, description="part of the updates for which each of several learning rates is tried"
    )
    train_flags: Flags = Field((), description="further options of fairseq-train, in one string")
    subset: str = Field("valid", description="the split to evaluate on")
    score_from: PositiveInt | None = Field(
        None, description="score only tokens with that many before them, see `alibi-fairseq eval`"
    )
    score_to: PositiveInt | None = Field(
        None, description="score only the first so many tokens, of each document with per_document"
    )
    per_document: Literal["empty-lines", "titles"] | None = Field(
        None, description="how documents are told apart, to sum the loss of each"
    )
    title: str = Field("Perplexity by evaluation length", description="of table and figure")
    user_dir: str | None = None  # a plugin, already imported, of the models
    train_on: AnyNumber[str] = ()  # names of the corpora that models are trained on; none: all
    also_on: AnyNumber[str] = ()  # those on which models of the others are evaluated too
    shared_vocabulary: PositiveInt | None = (
        None  # entries of one sentencepiece dictionary for all texts
    )
    order: Several[str] = AXES
    # Further strides, and the window lengths that have them.
    sliding: dict[PositiveInt, Several[Length]] = field(default_factory=dict)
    # By method and name: options of the model to override in further evaluations; the value
    # "train_length" stands for the training length.
    variants: dict[Method, dict[Name, dict[str, Any]]] = field(default_factory=dict)
    # By method: options of fairseq-train; {train_length} and {0.75*train_length} stand for tokens.
    method_flags: dict[Method, Flags] = field(default_factory=dict)

    def __post_init__(self):
        names = [corpus.name for corpus in self.corpora]
        if len(set(names)) < len(names):
            raise ValueError("corpora: two of them have the same name")
        if sorted(self.order) != sorted(AXES):
            raise ValueError(f"order: must name {', '.join(AXES)}, each once")
        if unknown := {*self.train_on, *self.also_on} - set(names):
            raise ValueError(f"there is no corpus '{min(unknown)}'")
        if self.also_on and not self.shared_vocabulary and any(each.text for each in self.corpora):
            raise ValueError("also_on: the texts need one dictionary; give shared_vocabulary")
        for corpus, length in itertools.product(self.corpora, self.train_lengths):
            if corpus.probe:
                PROBES[corpus.probe].check(length)
        for length in self.train_lengths:
            if self.tokens_per_update % length:
                multiple = -(-self.tokens_per_update // length) * length
                raise ValueError(
                    f"tokens_per_update: {self.tokens_per_update} is not a multiple of the training "
                    f"length {length}, so runs would not read the same number of tokens; use "
                    f"{multiple}, for example"
                )

    def cells(self) -> Iterator[ModelSpec]:
        """The models, the most important first."""
        corpora = [
            each.name for each in self.corpora if each.name in self.train_on or not self.train_on
        ]
        values: dict[str, Any] = {"seeds": self.seeds, "corpora": corpora}
        values |= {"train_lengths": self.train_lengths, "methods": self.methods}
        for combination in itertools.product(*(values[axis] for axis in self.order)):
            of = dict(zip(self.order, combination))
            yield ModelSpec(of["corpora"], of["methods"], of["train_lengths"], of["seeds"])

    @property
    def tokens(self) -> int:
        """Tokens that each run reads."""
        return self.updates * self.tokens_per_update


def load(path: str | Path, kind: type = ComparisonConfig) -> Any:
    """A description from a YAML file whose keys are the attributes of its kind."""
    with open_input(path) as stream:
        content = stream.read()
    try:
        return from_mapping(yaml.safe_load(content), kind)
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise UserInputError(f"{path}: {f'{error} '.splitlines()[0]}") from error


def from_mapping(
    values: object, kind: type = ComparisonConfig, flags: Mapping[str, str] = MappingProxyType({})
) -> Any:
    """A description from plain values, as YAML gives them; lists may be given as one value.

    Args:
        flags: options of the command line by the keys they give, for messages.
    """
    try:
        return TypeAdapter(kind).validate_python(values)
    except ValidationError as errors:
        error = errors.errors(include_url=False)[0]
        problem = requirement(error)
        value = error["input"]
        if problem.startswith("must") and isinstance(value, str | int | float):
            problem = f"{str(value)[:60]!r} {problem}"
        key, colon, rest = problem.partition(": ")
        if not error["loc"] and colon:  # a check of several keys, which names the first
            raise UserInputError(f"{flags.get(key, key)}: {rest}.") from errors
        where = ".".join(map(str, error["loc"]))
        for part in error["loc"]:
            where = flags.get(str(part), where)
        raise UserInputError(f"{where}: {problem}." if where else f"{problem}.") from errors


def as_mapping(comparison: ComparisonConfig) -> dict:
    """The plain values that a comparison is read from."""
    plain = TypeAdapter(ComparisonConfig).dump_python(comparison, mode="json", exclude_none=True)
    if comparison.hours is not None:
        del plain["updates"]
    if len(comparison.lr) == 1:
        plain["lr"] = comparison.lr[0]
    return plain
