"""Rows of tables and lines of figures: one per series and reading, with seeds averaged."""

from __future__ import annotations

import itertools
import json
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from ..positions.display_names import KNOWN_LABELS
from ..positions.spec import MethodNameKey, distinct_labels
from ..results.case import Case
from ..results.result import Result, SeedsKey, TextValues, seeds
from .conditions import Model, condition_text, differences, short_path

#: Largest number of differing conditions that the labels of rows state.
MAX_STATED = 2
#: Fraction of the bits per token of guessing, above which a model is near chance.
CHANCE_FRACTION = 0.9


def model_label(name: str, train_length: int | None) -> str:
    """Return ``ALiBi, L=512``, or the name of the method alone without a training length."""
    if train_length is None:
        return name
    return f"{name}, L={train_length}"


@dataclass(frozen=True)
class Point:
    """Results of the seeds of a row in one case, and their means.

    Attributes:
        results: one result per seed.
    """

    case: Case
    results: Sequence[Result]
    status: str = ""

    @property
    def values(self) -> list[TextValues]:
        """Losses of the seeds on a text."""
        return [result.values for result in self.results if isinstance(result.values, TextValues)]

    @property
    def seeds(self) -> int:
        """Number of averaged seeds."""
        return len(self.results)

    @property
    def perplexity(self) -> float | None:
        """Mean perplexity per token; None without results."""
        return _mean_of_known([values.perplexity for values in self.values])

    @property
    def spread(self) -> float | None:
        """Standard deviation of the perplexity over seeds; None of one seed."""
        if self.seeds < 2:
            return None
        return statistics.stdev(values.perplexity for values in self.values)

    @property
    def bits_per_byte(self) -> float | None:
        """Mean of the bits per byte of the text, over the seeds for which they are known."""
        return _mean_of_known([values.bits_per_byte for values in self.values])

    @property
    def position_ends(self) -> Sequence[int]:
        """Last position of each bucket of the loss by position; empty if a seed lacks it."""
        return self.values[0].position_ends if self.position_bits else ()

    @property
    def position_tokens(self) -> Sequence[int]:
        """Number of tokens of each bucket."""
        return self.values[0].position_tokens if self.position_bits else ()

    @property
    def position_bits(self) -> list[float]:
        """Mean total loss of each bucket; empty if a seed lacks it."""
        return [statistics.fmean(bits) for bits in self._bits_by_bucket()]

    @property
    def position_spread(self) -> list[float]:
        """Standard deviation of the total loss of each bucket over seeds; empty for one seed."""
        if self.seeds < 2:
            return []
        return [statistics.stdev(bits) for bits in self._bits_by_bucket()]

    @property
    def position_errors(self) -> list[float | None]:
        """Mean standard error of each bucket.

        All seeds were evaluated on the same windows, so the error does not decrease.
        """
        errors = zip(*(values.position_errors for values in self.values))
        return [_mean_of_known(of_bucket) for of_bucket in errors]

    def _bits_by_bucket(self) -> list[tuple[float, ...]]:
        """Return the losses of each bucket by seed; empty if a seed lacks them."""
        if not all(values.position_bits for values in self.values):
            return []
        return list(zip(*(values.position_bits for values in self.values), strict=True))

    @property
    def longest_window(self) -> int | None:
        """Tokens of the longest window; None if it is unknown."""
        return self.values[0].longest_window if self.values else None

    @property
    def is_past_end(self) -> bool:
        """True if one window has the whole text, which is shorter than the evaluation length."""
        return bool(self.results) and is_past_end(self.results[0])

    @property
    def is_near_chance(self) -> bool:
        """True if the perplexity is about as good as guessing.

        Guessing any entry of a dictionary of V entries has a perplexity of V, and at least V^0.9
        counts as chance. It is False without a perplexity, or if the dictionary's size is unknown.
        """
        if self.perplexity is None or not self.results:
            return False
        vocabulary = self.results[0].series.facts.vocabulary
        if vocabulary is None:
            return False
        return math.log(self.perplexity) >= CHANCE_FRACTION * math.log(vocabulary)


def is_past_end(result: Result) -> bool:
    """Return True if one window has the whole text, which is shorter than the evaluation length.

    Longer windows repeat its result. Sliding windows may be short near the end of a longer text
    also, and then have other results at other lengths.
    """
    assert isinstance(result.values, TextValues)
    longest = result.values.longest_window
    if longest is None or not result.case.nonoverlapping:
        return False
    return longest < result.case.length


def _mean_of_known(values: Iterable[float | None]) -> float | None:
    """Return the mean of the values that are known, or None if there are none."""
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


@dataclass(frozen=True)
class Row:
    """Row of a table or line of a figure: the results of one series and reading, by case.

    Attributes:
        name: position method and training length, or the label that the user chose.
        method_name: name of the position method in tables; empty for models by other authors.
        train_length: training length in tokens; None if the row joins several.
        points: results by case, in order of the evaluation length.
        variant: what else tells the row from others of its name.
        model: series and reading; None for numbers of the paper.
        stated: names of the conditions that ``variant`` has.
        is_printed: True for the paper's numbers.
    """

    name: str
    method_name: str
    train_length: int | None
    points: Sequence[Point]
    variant: str = ""
    model: Model | None = None
    stated: frozenset[str] = frozenset()
    is_printed: bool = False

    @property
    def label(self) -> str:
        """Name and variant."""
        return f"{self.name} ({self.variant})" if self.variant else self.name

    @property
    def results(self) -> list[Result]:
        """Results of all seeds and cases."""
        return [result for point in self.points for result in point.results]


@dataclass
class _Group:
    """Results of one series and reading, of one run of each seed.

    Attributes:
        run: number of the run among those of the same seed.
        alone: True if the results are never averaged, because a seed or text is unknown.
        label: label of the method among those of the table.
    """

    model: Model
    run: int
    alone: bool
    points: list[Point] = field(default_factory=list)
    label: str = ""

    @property
    def method_key(self) -> MethodNameKey:
        """Key of the models of one method."""
        return self.model.series.method.name_key

    @property
    def name(self) -> str:
        """Label that the user chose, or method and training length."""
        series = self.model.series
        return series.label or model_label(self.label, series.train_length)

    @property
    def variant(self) -> str:
        """Options that were changed for the evaluation, by their name if they have one."""
        reading = self.model.reading
        if reading.variant:
            return reading.variant
        overrides = sorted(reading.overrides.items())
        return ", ".join(f"{name}={json.dumps(value)}" for name, value in overrides)


def build_rows(results: Iterable[Result]) -> list[Row]:
    """Return the rows of results on one text or probe, in table order.

    Seeds are averaged as :func:`.results.result.seeds` says. Rows of one name state the one or two
    conditions that differ; if more do, a letter leads to their row in the table of conditions
    (:func:`.caption.conditions_table`). Methods without a place in the order of tables, such as
    plugin methods, follow the method that comes before them in the results.

    Raises:
        UserInputError: two evaluations of one checkpoint have different values.
    """
    groups: dict[tuple, _Group] = {}
    for key, members in seeds(results).items():
        first = members[0]
        model = Model(first.series, first.reading)
        group = groups.setdefault(_row_key(key), _Group(model, key.run, bool(key.alone)))
        group.points.append(Point(key.case, members))
    labels = distinct_labels(group.model.series.method for group in groups.values())
    for group in groups.values():
        group.label = labels[group.model.series.method]
    ranks = _method_ranks(group.method_key for group in groups.values())
    named: dict[tuple, list[_Group]] = defaultdict(list)
    for group in groups.values():
        group.points.sort(key=_point_order)
        rank = ranks[group.method_key]
        named[rank, group.model.series.train_length, group.name, group.variant].append(group)
    rows: list[tuple[tuple, Row]] = []
    letters = _letters()
    for (rank, length, _, _), clashing in named.items():
        for row in _rows_of_one_name(clashing, letters):
            rows.append(((rank, length, row.label), row))
    return [row for _, row in sorted(rows, key=lambda keyed: keyed[0])]


def _row_key(key: SeedsKey) -> tuple:
    """Return what the results of a row share."""
    return (key.series, key.reading, key.run, key.alone)


def _point_order(point: Point) -> tuple:
    """Return the sort key of a point."""
    case = point.case
    return (case.length, not case.nonoverlapping, case.stride, case.split)


def _method_ranks(methods: Iterable[MethodNameKey]) -> dict[MethodNameKey, tuple[int, int]]:
    """Return the sort key of each method.

    It is the place of the known method, and the number of unknown methods since that method.
    """
    ranks: dict[MethodNameKey, tuple[int, int]] = {}
    known_rank = -1  # before all known methods
    num_unknown = 0
    for method in methods:
        if method in ranks:
            continue
        if method.label in KNOWN_LABELS:
            known_rank = KNOWN_LABELS.index(method.label)
            num_unknown = 0
        else:
            num_unknown += 1
        ranks[method] = (known_rank, num_unknown)
    return ranks


def _letters() -> Iterator[str]:
    """Yield ``A`` to ``Z``, then ``A2`` to ``Z2``, and so on."""
    for repetition in itertools.count(1):
        for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ":
            yield letter if repetition == 1 else f"{letter}{repetition}"


def _rows_of_one_name(groups: Sequence[_Group], letters: Iterator[str]) -> list[Row]:
    """Return the rows of groups with the same name, told apart by what differs.

    Args:
        groups: the groups.
        letters: letters that no other row has.
    """
    texts = [""] * len(groups)
    stated: frozenset[str] = frozenset()
    if len(groups) > 1:
        different = differences([group.model for group in groups], of_one_method=True)
        by_row = list(zip(*different.values(), strict=True)) or [()] * len(groups)
        if len(different) <= MAX_STATED:
            stated = frozenset(different)
            texts = [_stated(different, values) for values in by_row]
        else:
            letter_of: dict[tuple, str] = {}
            for values in by_row:
                if values not in letter_of:
                    letter_of[values] = next(letters)
            texts = [letter_of[values] for values in by_row]
        texts = _with_runs(groups, texts)
    rows = []
    for group, text in zip(groups, texts, strict=True):
        series = group.model.series
        row = Row(
            name=group.name,
            method_name=series.method.label,
            train_length=series.train_length,
            points=group.points,
            variant=_joined([group.variant, text]),
            model=group.model,
            stated=stated,
        )
        rows.append(row)
    return rows


def _stated(names: Iterable[str], values: Iterable[str]) -> str:
    """Return the differing conditions of a row."""
    return _joined(condition_text(name, value) for name, value in zip(names, values))


def _with_runs(groups: Sequence[_Group], texts: Sequence[str]) -> list[str]:
    """Add the run to the texts of groups that are alike, or the checkpoint."""
    alike: dict[str, list[_Group]] = defaultdict(list)
    for group, text in zip(groups, texts, strict=True):
        alike[text].append(group)
    names = {text: iter(_run_names(members)) for text, members in alike.items()}
    return [_joined([text, next(names[text])]) for text in texts]


def _run_names(groups: Sequence[_Group]) -> list[str]:
    """Return what distinguishes each run from those that are alike; empty for the only one."""
    if len(groups) == 1:
        return [""]
    facts = _distinct_facts([group.points[0].results[0] for group in groups])
    is_repeated = all(group.model == groups[0].model for group in groups)
    names = []
    for group, fact in zip(groups, facts, strict=True):
        if is_repeated and not group.alone:
            names.append(f"run {group.run + 1}" if group.run else "")
        else:
            names.append(fact)
    return names


def _distinct_facts(results: Sequence[Result]) -> list[str]:
    """Return path, seed, or hash of each checkpoint, the first that differs, or all of them."""
    paths = [short_path(result.checkpoint or "unnamed") for result in results]
    seed_names = []
    hashes = []
    for result in results:
        seed_names.append("unknown seed" if result.seed is None else f"seed {result.seed}")
        hashes.append(f"checkpoint hash {(result.checkpoint_sha256 or 'unknown')[:8]}")
    for facts in (paths, seed_names, hashes):
        if len(set(facts)) == len(results):
            return facts
    return [_joined(of_result) for of_result in zip(paths, seed_names, hashes, strict=True)]


def _joined(parts: Iterable[str]) -> str:
    """Join the parts that are not empty."""
    return ", ".join(part for part in parts if part)


def without_length(rows: Iterable[Row]) -> list[Row]:
    """Remove the training length from labels, for a panel whose title contains it."""
    renamed = []
    for row in rows:
        renamed.append(replace(row, name=row.name.replace(f", L={row.train_length}", "")))
    return renamed
