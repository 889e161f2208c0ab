"""What a comparison compares, from options or YAML, and its cells in the order of importance."""

from __future__ import annotations

import difflib
import itertools
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

import yaml

from ..errors import BadInput
from ..files import is_plain_name
from ..positions import METHODS

#: What ``all`` stands for: the methods of the paper's tables, learned, Transformer-XL and none.
PAPER_METHODS = ("sinusoidal", "learned", "rotary", "t5", "alibi", "transformer_xl", "none")
#: What a cell is one of. Order of importance: the first varies slowest.
AXES = ("seeds", "corpora", "train_lengths", "methods")
#: Options of fairseq-train that the description determines.
RESERVED = (
    *("--arch", "--position-method", "--tokens-per-sample", "--max-tokens", "--max-update"),
    *("--seed", "--save-dir", "--lr", "--warmup-updates", "--user-dir"),
)


@dataclass(frozen=True)
class Corpus:
    """One text to train and evaluate on.

    Attributes:
        name: of its folder and in tables.
        text: files, archives or folders that ``prepare text`` turns into binary data.
        data: a folder of fairseq's binary data, instead of text.
        tokenizer, vocabulary: see :class:`alibi_fairseq.data.own_text.OwnText`.
    """

    name: str
    text: tuple[str, ...] = ()
    data: str | None = None
    tokenizer: str = "sentencepiece"
    vocabulary: int | None = None


@dataclass(frozen=True)
class Comparison:
    """Which models to train, and at which lengths to evaluate each of them.

    Attributes:
        corpora: texts.
        methods: position methods.
        train_lengths: ``--tokens-per-sample``, in tokens.
        eval_lengths: window lengths, in tokens.
        seeds: of initialisation and of the order of the data.
        arch: a registered model.
        updates: optimizer steps of each run.
        hours: instead of ``updates``: as many as fit into so many hours on this machine
            (:mod:`.budget`).
        tokens_per_update: of every run, whatever its length.
        lr: peak learning rate of Adam, reached after a sixth of the updates, 4,000 at most.
        train_flags: further options of ``fairseq-train``.
        strides: tokens that each window scores; ``full`` is all of them.
        subset: the split to evaluate on.
        title: of table and figure.
        user_dir: a plugin, already imported, that the models need.
        order: the axes by importance: the first varies slowest, so that an interrupted comparison
            is complete in the others.
    """

    corpora: tuple[Corpus, ...]
    methods: tuple[str, ...] = ("alibi", "sinusoidal")
    train_lengths: tuple[int, ...] = (128,)
    eval_lengths: tuple[int, ...] = (128, 256, 512, 1024)
    seeds: tuple[int, ...] = (1,)
    arch: str = "alibi_lm_tiny"
    updates: int = 1000
    hours: float | None = None
    tokens_per_update: int = 4096
    lr: float = 0.001
    train_flags: tuple[str, ...] = ()
    strides: tuple[str, ...] = ("full",)
    subset: str = "valid"
    title: str = "Perplexity by evaluation length"
    user_dir: str | None = None
    order: tuple[str, ...] = field(default=AXES)

    def __post_init__(self):
        for name in ("corpora", "methods", "train_lengths", "eval_lengths", "seeds", "strides"):
            if not getattr(self, name):
                raise BadInput(f"{name}: at least one is needed.")
        for name in ("train_lengths", "eval_lengths", "updates", "tokens_per_update"):
            values = getattr(self, name)
            for value in values if isinstance(values, tuple) else (values,):
                if value < 1:
                    raise BadInput(f"{name}: {value} is not a number above 0.")
        if self.hours is not None and not self.hours > 0:
            raise BadInput(f"hours: {self.hours} is not a number above 0.")
        if sorted(self.order) != sorted(AXES):
            raise BadInput(f"order: must name {', '.join(AXES)}, each once.")
        for name in self.methods:
            if name not in METHODS:
                nearest = difflib.get_close_matches(name, METHODS, n=1)
                hint = f" Did you mean '{nearest[0]}'?" if nearest else ""
                raise BadInput(
                    f"methods: there is no position method '{name}'.{hint} Choose from "
                    f"{', '.join(METHODS)}, 'all' for the seven that are no later than ALiBi, and "
                    "'later' for the others."
                )
        for length in self.train_lengths:
            if self.tokens_per_update % length:
                multiple = -(-self.tokens_per_update // length) * length
                raise BadInput(
                    f"tokens_per_update: {self.tokens_per_update} is not a multiple of the training "
                    f"length {length}, so runs would not read the same number of tokens; use "
                    f"{multiple}, for example."
                )
        given = [flag.partition("=")[0] for flag in self.train_flags]
        if taken := [flag for flag in RESERVED if flag in given]:
            raise BadInput(f"train_flags: the comparison itself sets {', '.join(taken)}.")

    def cells(self) -> Iterator[tuple[Corpus, str, int, int]]:
        """(corpus, method, training length, seed), the most important first."""
        for values in itertools.product(*(getattr(self, axis) for axis in self.order)):
            of = dict(zip(self.order, values))
            yield of["corpora"], of["methods"], of["train_lengths"], of["seeds"]

    @property
    def tokens(self) -> int:
        """That each run reads."""
        return self.updates * self.tokens_per_update


def load(path: str | Path) -> Comparison:
    """A comparison from a YAML file whose keys are the attributes of :class:`Comparison`.

    Raises:
        BadInput: it cannot be read, or a key or value is wrong.
    """
    try:
        values = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        first = f"{error}\n".splitlines()[0]
        raise BadInput(f"{path}: cannot be read as YAML ({first}).") from error
    if not isinstance(values, dict):
        raise BadInput(f"{path}: must be a mapping with the keys of a comparison.")
    try:
        return from_mapping(values)
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from error
    except (TypeError, ValueError, ArithmeticError, AttributeError) as error:
        raise BadInput(f"{path}: a value is of the wrong kind ({error}).") from error


def from_mapping(values: Mapping) -> Comparison:
    """A comparison from plain values, as YAML gives them; lists may be given as one value.

    Raises:
        BadInput: a key or value is wrong.
    """
    values = _checked(Comparison, values)
    corpora = values.get("corpora")
    if not isinstance(corpora, list) or not all(isinstance(each, dict) for each in corpora):
        raise BadInput(
            "corpora: must be a list of mappings, each with 'name', and 'text' or 'data'."
        )
    values["corpora"] = tuple(_corpus(each) for each in corpora)
    names = [corpus.name for corpus in values["corpora"]]
    if len(set(names)) < len(names):
        raise BadInput("corpora: two of them have the same name.")
    if "methods" in values:
        later = [name for name in METHODS if name not in PAPER_METHODS]
        groups = {"all": list(PAPER_METHODS), "later": later}
        given = _list("methods", values["methods"], str)
        values["methods"] = [name for each in given for name in groups.get(each, [each])]
    for name, kind in (
        *(("methods", str), ("strides", str), ("order", str)),
        *(("train_lengths", int), ("eval_lengths", int), ("seeds", int)),
    ):
        if name in values:
            values[name] = tuple(dict.fromkeys(_list(name, values[name], kind)))
    if "train_flags" in values:
        flags = values["train_flags"]
        values["train_flags"] = tuple(
            shlex.split(flags) if isinstance(flags, str) else map(str, flags)
        )
    if values.get("hours") is not None and "updates" in values:
        raise BadInput("updates and hours: give one of them.")
    numbers: dict[str, type] = dict(updates=int, hours=float, tokens_per_update=int, lr=float)
    for name, number in numbers.items():
        if values.get(name) is not None:
            (values[name],) = _list(name, values[name], number)
    return Comparison(**values)


def as_mapping(comparison: Comparison) -> dict:
    """What :func:`from_mapping` reads, as JSON and YAML can hold it."""
    plain = {f.name: _plain(getattr(comparison, f.name)) for f in fields(Comparison)}
    del plain["updates" if comparison.hours is not None else "hours"]
    plain["corpora"] = [
        {
            f.name: _plain(getattr(corpus, f.name))
            for f in fields(Corpus)
            if getattr(corpus, f.name) not in (None, ())
        }
        for corpus in comparison.corpora
    ]
    return plain


def _corpus(values: dict) -> Corpus:
    values = _checked(Corpus, values)
    if "name" not in values or ("text" in values) == ("data" in values):
        raise BadInput("corpora: each needs 'name', and either 'text' or 'data'.")
    if not is_plain_name(values["name"]):
        raise BadInput(
            f"corpora: '{values['name']}' cannot be the name of a folder; use letters and digits."
        )
    if "text" in values:
        values["text"] = tuple(_list("text", values["text"], str))
    return Corpus(**values)


def _checked(kind: type, values: Mapping) -> dict:
    known = [f.name for f in fields(kind)]
    for key in values:
        if key not in known:
            nearest = difflib.get_close_matches(str(key), known, n=1)
            hint = f" Did you mean '{nearest[0]}'?" if nearest else ""
            raise BadInput(f"there is no key '{key}'.{hint} The keys are {', '.join(known)}.")
    return dict(values)


def _list(name: str, values: object, kind: type) -> list:
    values = values if isinstance(values, (list, tuple)) else [values]
    try:
        return [kind(value) for value in values]
    except (TypeError, ValueError) as error:
        raise BadInput(f"{name}: {values!r} is not what it must be ({kind.__name__}).") from error


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value
