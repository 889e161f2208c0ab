"""The claims of ``claims.yaml`` as comparisons, and the rule of the verdict.

The rules are those of docs/experiments.md. Numbers are changes of perplexity (or of speed, where it says
so) with 95 % intervals, see :mod:`.bootstrap`.
"""

from __future__ import annotations

import collections
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter

from ..paper import published
from ..results.points import Point, method_name
from .bootstrap import Interval, Losses, change, speed_up
from .comparison import tokens_at

#: The smallest change that counts; smaller ones are level.
COUNTS = 0.005
#: Likewise of speeds: the paper's differ by up to 4.5 % (Table 1).
SPEED_COUNTS = 0.05
#: By how much sinusoidal must beat no positions at all, or it has not learned positions.
LEARNED = 0.02
SIZE, DIRECTION, CONTRADICTED = "same direction and size", "same direction", "contradicted"
OPEN, NOT_HERE, NOT_RUN = "cannot be told", "does not apply at this scale", "not run yet"


@dataclass(frozen=True)
class Evaluation:
    """What was evaluated on what, all seeds together."""

    corpus: str  # that the models were trained on
    method: str
    train_length: int
    tested_on: str  # the corpus of the documents
    length: int  # of the windows, in tokens
    stride: int
    variant: str = ""  # the name of the options that were overridden

    @classmethod
    def of(cls, text: str, corpus: str = "") -> Evaluation:
        """``METHOD L WINDOW [S=STRIDE] [VARIANT]`` as claims.yaml has it."""
        method, n, window, *more = text.split()
        (length,) = tokens_at([window], int(n))
        stride, variant = length, ""
        for word in more:
            if number := word.partition("S=")[2]:
                stride = length // 4 if number == "1/4" else int(number)
            else:
                variant = word
        return cls(corpus, method, int(n), corpus, length, stride, variant)

    @property
    def name(self) -> str:
        return method_name(self.method)


@dataclass
class Results:
    """What is kept of a study: its finished evaluations, and what the page shows beside them."""

    losses: dict[Evaluation, Losses] = field(default_factory=dict)
    #: Seconds of the rounds by phase, method and training length.
    speeds: dict[tuple[str, str, int], list[float]] = field(default_factory=dict)
    #: Perplexities of non-overlapping windows on the models' own corpora.
    points: list[Point] = field(default_factory=list)
    #: Validation losses in bits, one for each seed: (method, training length) → updates → losses.
    curves: dict[tuple[str, int], dict[int, list[float]]] = field(default_factory=dict)

    @property
    def corpora(self) -> list[str]:
        """The main one first."""
        return [*dict.fromkeys(each.corpus for each in self.losses)]

    @property
    def train_lengths(self) -> list[int]:
        return sorted({each.train_length for each in self.losses})

    def of(self, text: str, corpus: str) -> tuple[Evaluation, Losses | None]:
        """An evaluation, or the difference of two of the same models, and its losses if they are there."""
        evaluation, *minus = (Evaluation.of(each, corpus) for each in text.split(" - "))
        found = self.losses.get(evaluation)
        for each in minus:
            less = self.losses.get(each)
            found = found and less and replace(found, bits=found.bits - less.bits)
        return evaluation, found


@dataclass(frozen=True)
class Finding:
    """The outcome of one comparison."""

    what: str
    number: Interval
    paper: float  # the change that the paper measured, and that the claim is about; NaN: none
    direction: int | None  # −1: lower, 1: higher, 0: level
    seeds: tuple[int, int] = (0, 0)  # on each side; a single one decides nothing
    level: float = COUNTS  # changes up to this are none
    applies: bool = True  # to models of this size, beside a baseline that has learned positions

    @property
    def verdict(self) -> str:
        """By the rule of docs/experiments.md; empty if it is only shown."""
        if self.direction is None:
            return ""
        if not self.applies:
            return NOT_HERE
        found = self.number
        if min(self.seeds) == 1:
            return OPEN
        if self.direction == 0:
            if found.within(-self.level, self.level):
                return SIZE
            return CONTRADICTED if found.low > self.level or found.high < -self.level else OPEN
        low, high = (COUNTS, math.inf) if self.direction > 0 else (-math.inf, -COUNTS)
        if found.within(low, high):
            same = abs(math.log1p(found.value) / math.log1p(self.paper)) if self.paper else math.nan
            return SIZE if 0.5 <= same <= 2 else DIRECTION
        return CONTRADICTED if found.high < low or found.low > high else OPEN


@dataclass(frozen=True)
class Comparison:
    """Two evaluations in each case of some variables, by the keys of claims.yaml."""

    what: str
    one: str
    other: str
    over: Mapping[str, Any]
    paper: str = ""
    direction: int | None = None
    first: bool = False

    def findings(self, results: Results, corpus: str) -> Iterator[Finding]:
        found: set[tuple] = set()
        learned = learned_positions(results)
        for case in self.cases(results.train_lengths):
            group = tuple(case.get(name) for name in [*self.over][:-1])
            one, here = results.of(self.one.format(**case), corpus)
            other, there = results.of(self.other.format(**case), corpus)
            if here is None or there is None or (self.first and group in found):
                continue
            found.add(group)
            item, *pair = self.paper.format(**case).split(", ")
            in_paper = [Evaluation.of(each) for each in pair] or [one, other]
            paper = papers(item, *in_paper)
            direction = self.direction if math.isnan(paper) else sign(paper)
            what = self.what.format(**case, one=one, other=other)
            seeds = (len(here.seeds), len(there.seeds))
            lengths = {e.train_length for e in (one, other) if e.method == "sinusoidal"}
            applies = lengths <= learned
            yield Finding(what, change(here, there), paper, direction, seeds, applies=applies)

    def cases(self, train_lengths: list[int]) -> list[dict]:
        """The values of the variables; ``m``, where there is one, is longer than ``n``."""
        named = []
        for name, values in self.over.items():
            values = train_lengths if values == "lengths" else values
            named.append([each if isinstance(each, dict) else {name: each} for each in values])
        found = [dict(collections.ChainMap(*case)) for case in itertools.product(*named)]
        return [case for case in found if case.get("n", 0) < case.get("m", math.inf)]


def sign(change: float) -> int:
    """The direction of a change; 0 if it is too small to count."""
    return 0 if abs(change) < COUNTS else int(math.copysign(1, change))


def papers(item: str, one: Evaluation, other: Evaluation) -> float:
    """The change between two evaluations in a table of the paper; NaN if it lacks one."""
    found = {
        (point.position_method, point.train_length, point.length, point.stride): point.perplexity
        for point in (published.points(item) if item else ())
        if point.subset == "valid"
    }
    first, second = (
        found.get((each.method, each.train_length, each.length, each.stride))
        for each in (one, other)
    )
    return first / second - 1 if first and second else math.nan


def speed(results: Results) -> Iterator[Finding]:
    columns = {"train": "train_words_per_second", "evaluate": "eval_words_per_second"}
    printed = {
        (row["position_method"], row["train_length"]): row for row in published.rows("table01")
    }
    for (phase, method, n), seconds in sorted(results.speeds.items()):
        baseline = results.speeds.get((phase, "sinusoidal", n))
        if method not in ("alibi", "rotary", "t5") or baseline is None:
            continue
        mine, theirs = (printed.get((each, n)) for each in (method, "sinusoidal"))
        column = columns[phase]
        paper = mine[column] / theirs[column] - 1 if mine and theirs else math.nan
        what = f"speed of {method_name(method)} against sinusoidal at {n}, {phase}"
        # Rotary and T5 bias were not optimised in the paper (footnotes 5 and 8): shown only.
        found, direction = speed_up(seconds, baseline), 0 if method == "alibi" else None
        yield Finding(what, found, paper, direction, level=SPEED_COUNTS)


@dataclass(frozen=True)
class Claim:
    """A claim, by the keys of claims.yaml."""

    title: str
    source: str
    comparisons: tuple[Comparison, ...] = ()
    large: bool = False
    later: bool = False
    elsewhere: bool = False
    speeds: bool = False
    note: str = ""

    def findings(self, results: Results) -> Iterator[Finding]:
        if self.speeds:
            yield from speed(results)
        for corpus in results.corpora[1:] if self.elsewhere else results.corpora[:1]:
            for comparison in self.comparisons:
                for finding in comparison.findings(results, corpus):
                    yield replace(finding, applies=finding.applies and not self.large)


def worst(findings: Iterable[Finding]) -> str:
    """The verdict on a claim with these comparisons; empty if none has one."""
    found = {each.verdict for each in findings}
    ordered = (CONTRADICTED, OPEN, DIRECTION, SIZE, NOT_HERE)
    return next((verdict for verdict in ordered if verdict in found), "" if found else NOT_RUN)


def learned_positions(results: Results) -> set[int]:
    """The training lengths at which sinusoidal beats no positions by as much as counts."""
    found = set()
    for n in results.train_lengths:
        _, one = results.of(f"sinusoidal {n} 1x", results.corpora[0])
        _, other = results.of(f"none {n} 1x", results.corpora[0])
        if one and other and 2 ** (one.loss.mean() - other.loss.mean()) <= 1 - LEARNED:
            found.add(n)
    return found


CLAIMS = TypeAdapter(tuple[Claim, ...]).validate_python(
    yaml.safe_load(Path(__file__).with_name("claims.yaml").read_text(encoding="utf-8"))
)
