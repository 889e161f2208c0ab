"""What a study trains and evaluates, from YAML."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from ...errors import BadInput
from ..comparison import (
    STRICT,
    Comparison,
    Flags,
    FolderName,
    as_flags,
    from_mapping,
    read_yaml,
    validated,
)


@dataclass(frozen=True, config=STRICT)
class StudyCorpus:
    """A text and what is taken of it.

    Attributes:
        name: of the corpus in the study; results bear the name of the text as well.
        layout: ``wikitext-103`` or ``text``: which ``alibi-fairseq prepare`` reads it.
        documents: how documents are told apart, see :func:`.data.documents`.
        vocabulary: entries of the dictionary; the other words are unknown, pieces never are.
        sample: bytes of text, in whole documents, that are prepared; 0: all.
        train: tokens to train on.
        test: documents that are evaluated, and the tokens taken of each.
        train_flags: further options of ``fairseq-train`` for its models.
    """

    name: FolderName
    layout: Literal["wikitext-103", "text"]
    documents: Literal["titles", "empty-lines"]
    vocabulary: int
    train: int
    test: tuple[int, int]
    sample: int = 0
    train_flags: Flags = ()


@dataclass(frozen=True, config=STRICT)
class Tests:
    """At which lengths a model is evaluated.

    Attributes:
        factors: multiples of the training length.
        beyond: tokens more than the training length.
        longest: no windows longer than this.
        sliding: multiples of the training length at which windows slide by one token.
        sliding_longest: no sliding windows longer than this.
        sliding_tokens: tokens of each document that sliding windows score.
        variants: options of a method's model to override for a second evaluation, by method.
    """

    factors: tuple[int, ...]
    beyond: tuple[int, ...]
    longest: int
    sliding: tuple[int, ...]
    sliding_longest: int
    sliding_tokens: int
    variants: dict[str, dict[str, object]] = Field(default_factory=dict)

    def lengths(self, train_length: int) -> list[int]:
        """Of windows that do not overlap."""
        wanted = {factor * train_length for factor in self.factors}
        wanted |= {train_length + more for more in self.beyond}
        return sorted(length for length in wanted if length <= self.longest)

    def sliding_lengths(self, train_length: int) -> list[int]:
        """Of windows that slide by one token; none if there would be one length only."""
        wanted = sorted(factor * train_length for factor in self.sliding)
        found = [length for length in wanted if length <= self.sliding_longest]
        return found if len(found) > 1 else []

    def of(self, method: str, train_length: int) -> dict:
        """All that a cell is evaluated on, as JSON."""
        return {
            "lengths": self.lengths(train_length),
            "sliding": self.sliding_lengths(train_length),
            "sliding_tokens": self.sliding_tokens,
            "variant": self.variants.get(method, {}),
        }


@dataclasses.dataclass(frozen=True)
class Key:
    """What a cell is: one model."""

    corpus: str
    method: str
    train_length: int
    seed: int

    @property
    def name(self) -> str:
        return f"{self.corpus}-{self.method}-{self.train_length}-seed{self.seed}"


@dataclass(frozen=True, config=STRICT)
class Study:
    """A description.

    Attributes:
        title: of the page.
        corpora: by name.
        tests: the evaluations.
        parts: trainings with the same settings, the most important first.
        note: for the page, in Markdown.
    """

    title: str
    corpora: dict[str, StudyCorpus]
    tests: Tests
    parts: tuple[Comparison, ...]
    note: str = ""

    def cells(self) -> Iterator[tuple[Key, Comparison]]:
        """Each cell once, in the order of importance."""
        found: dict[Key, Comparison] = {}
        for part in self.parts:
            for corpus, method, train_length, seed in part.cells():
                found.setdefault(Key(corpus.name, method, train_length, seed), part)
        yield from found.items()


def load(path: Path) -> Study:
    """Read a description."""
    return read_yaml(path, _study)


def _study(values: dict) -> Study:
    try:
        corpora = {each["name"]: validated(StudyCorpus, each) for each in values["corpora"]}
        training = values.pop("training")
        parts = [_part(part, training, corpora) for part in values["parts"]]
        tests = validated(Tests, values["tests"])
    except (AttributeError, KeyError, TypeError) as error:
        raise BadInput(f"this is not the description of a study ({error!r}).") from error
    return validated(Study, {**values, "corpora": corpora, "tests": tests, "parts": parts})


def _part(part: dict, training: dict, corpora: dict[str, StudyCorpus]) -> Comparison:
    name = part["corpus"]
    if name not in corpora:
        raise BadInput(f"parts: there is no corpus '{name}' (there are: {', '.join(corpora)}).")
    flags = [*as_flags(training.get("train_flags", "")), *corpora[name].train_flags]
    rest = {key: value for key, value in part.items() if key != "corpus"}
    described = {"name": name, "data": name}  # the folder follows from the study's
    return from_mapping({**training, **rest, "corpora": [described], "train_flags": flags})
