"""Row of a table or line of a figure, and its points."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ..results.case import Case
from ..results.result import Result, RowKey
from ..results.values import TextValues
from .means import mean_of_known, standard_deviation

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
        results: one result per seed; none of a perplexity that the paper prints.
        status: text instead of a perplexity that the paper lacks; empty otherwise.
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
        return mean_of_known([values.perplexity for values in self.values])

    @property
    def spread(self) -> float | None:
        """Standard deviation of the perplexity over seeds; None of one seed."""
        return standard_deviation([values.perplexity for values in self.values])

    @property
    def bits_per_byte(self) -> float | None:
        """Mean of the bits per byte of the text, over the seeds for which they are known."""
        return mean_of_known([values.bits_per_byte for values in self.values])

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
        return [mean_of_known(of_bucket) for of_bucket in errors]

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
    if longest is None or longest >= result.case.length:
        return False
    has_whole_text = not result.case.has_range and longest == result.values.tokens
    return has_whole_text or result.case.nonoverlapping


@dataclass(frozen=True)
class Row:
    """Row of a table or line of a figure: the results of one series and reading, by case.

    Attributes:
        name: position method and training length, or the label that the user chose.
        method_name: name of the position method in tables; empty for models by other authors.
        train_length: training length in tokens; None if the row joins several.
        points: results by case, in order of the evaluation length.
        variant: what else tells the row from others of its name.
        key: what the results share; None for numbers of the paper.
        stated: names of the conditions that ``variant`` has.
        is_printed: True for the paper's numbers.
    """

    name: str
    method_name: str
    train_length: int | None
    points: Sequence[Point]
    variant: str = ""
    key: RowKey | None = None
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


def common_train_length(rows: Iterable[Row]) -> int | None:
    """Return the training length of all rows; None if they have several."""
    lengths = {row.train_length for row in rows}
    return lengths.pop() if len(lengths) == 1 else None


def without_common_length(rows: Sequence[Row]) -> Sequence[Row]:
    """Remove the training length from labels if all rows have the same, which a figure states."""
    train_length = common_train_length(rows)
    if train_length is None:
        return rows
    ending = model_label("", train_length)
    return [replace(row, name=row.name.removesuffix(ending)) for row in rows]
