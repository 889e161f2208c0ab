"""Tables of the differences between models with their confidence intervals."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from ..positions.spec import MethodSpec
from ..results.case import Case
from ..results.estimates import Difference, difference, nats_to_percent
from ..results.result import Result
from ..results.series import Series
from ..results.values import TextValues
from . import markdown
from .row import Row
from .rows import build_rows
from .table import Column, Table
from .texts import group_by_text

#: Method that others are compared with, if it is among them; otherwise the first one.
REFERENCE = "ALiBi"

#: Standard deviation of log perplexity over seeds, at the training length and beyond it. These are
#: root mean squares over the methods with three seeds in results/small_models/primary; beyond the
#: training length, of the length where they are largest. A test computes them from the results.
SEED_SPREAD = {"at": 0.0108, "beyond": 0.0288}

SEVERAL_SEEDS = (
    "Negative: lower perplexity than the reference. The 95% intervals are over {what}, and are not "
    "corrected for the number of comparisons. An interval that contains 0 does not show a "
    "difference."
)
DOCUMENTS_ADVICE = (
    " They hold for this text only. With --per-document, they are over documents as well."
)
ONE_SEED = (
    "Each model has one seed. Differences in perplexity below {at:.0f}% at the training length and "
    "below {beyond:.0f}% beyond it mean nothing: two models that differ only in the seed are "
    "within these limits in about 95% of cases, by the spread over seeds of the small models in "
    "results/small_models (24M tokens). Shorter training can spread more. Pass --seeds 1,2,3 for "
    "intervals."
)


class _Losses(NamedTuple):
    """Losses of one model in one case.

    Attributes:
        nats: (S, K) mean loss per token of each seed on each of K documents; K is 1 without losses
            by document.
        tokens: (K,) scored tokens of each document that has any.
        runs: how each model was trained, and its seed, or None if it is unknown.
    """

    nats: np.ndarray
    tokens: np.ndarray
    runs: Sequence[tuple[Series, int | None]]

    def of_runs(self, runs: Sequence[tuple[Series, int | None]]) -> _Losses:
        """Return the losses of some runs, in their order."""
        rows = [self.runs.index(run) for run in runs]
        return self._replace(nats=self.nats[rows], runs=runs)


def difference_sections(results: Sequence[Result]) -> list[str]:
    """Return how far models are from a reference at each length, or why this is not known.

    With one seed per model, the section says which differences mean nothing.

    Args:
        results: results of an evaluation.
    """
    tables = difference_tables(results)
    if tables:
        return [markdown.to_markdown([table]).rstrip() for table in tables]
    for group in group_by_text(results).values():
        rows = build_rows(group)
        if len(rows) > 1 and all(_num_seeds(row) < 2 for row in rows):
            return [one_seed_note()]
    return []


def difference_tables(results: Sequence[Result]) -> list[Table]:
    """Return a table of the differences for each group of comparable results with several seeds.

    Models are compared with the reference of the same training length.

    Args:
        results: results of an evaluation.
    """
    tables = []
    for group, of_group in group_by_text(results).items():
        rows = build_rows(of_group)
        if any(_num_seeds(row) > 1 for row in rows):
            tables += _difference_tables(group.name, rows)
    return tables


def row_difference(row: Row, reference: Row, case: Case) -> Difference | None:
    """Estimate how much higher the loss of a row's model is in a case.

    None without results of both there, or without two seeds on each side.
    """
    return _difference(*_Pair(row, reference).losses(case))


def one_seed_note() -> str:
    """Return the sentence on the differences that one seed per model cannot show."""
    limits = {where: seed_limit(spread) for where, spread in SEED_SPREAD.items()}
    return ONE_SEED.format(**limits)


def seed_limit(spread: float) -> float:
    """Return the 95% limit of the difference between two seeds, as a percentage of perplexity.

    Args:
        spread: standard deviation of log perplexity over seeds.
    """
    return 100 * math.expm1(1.96 * math.sqrt(2) * spread)


def _num_seeds(row: Row) -> int:
    return len({result.seed for result in row.results})


class _Pair(NamedTuple):
    """Row of a model, and that of the model that it is compared with."""

    row: Row
    reference: Row

    @property
    def label(self) -> str:
        """Names of both."""
        return f"{self.row.label} vs. {self.reference.label}"

    def losses(self, case: Case) -> tuple[_Losses | None, _Losses | None]:
        """Return the losses of both in a case, by document if both have the same documents."""
        first = _results_in(self.row, case)
        second = _results_in(self.reference, case)
        by_document = _have_same_documents([*first, *second])
        return _losses(first, by_document), _losses(second, by_document)


def _difference_tables(name: str, rows: Sequence[Row]) -> list[Table[_Pair]]:
    """Return the table of models that are evaluated alike, if two have one training length."""
    distinct_cases: set[Case] = set()
    by_train_length: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        distinct_cases.update(point.case for point in row.points)
        by_train_length[row.train_length or 0].append(row)
    pairs = []
    for train_length in sorted(by_train_length):
        reference = _reference(by_train_length[train_length])
        for row in by_train_length[train_length]:
            if row is not reference:
                pairs.append(_Pair(row, reference))
    if not pairs:
        return []
    columns = [Column[_Pair]("evaluated at →", lambda pair: pair.label)]
    num_documents = []
    for case in sorted(distinct_cases, key=lambda case: case.length):
        columns.append(Column(str(case.length), partial(_cell, case)))
        for pair in pairs:
            first, _ = pair.losses(case)
            if first is not None:
                num_documents.append(len(first.tokens))
    if num_documents and min(num_documents) > 1:
        note = SEVERAL_SEEDS.format(what="seeds and documents")
    else:
        note = SEVERAL_SEEDS.format(what="seeds") + DOCUMENTS_ADVICE
    caption = f"Difference in perplexity on {name}"
    return [Table(columns, pairs, caption=caption, notes=[note])]


def _cell(case: Case, pair: _Pair) -> str:
    """Return the difference of a pair in a case."""
    return _difference_text(*pair.losses(case))


def _reference(rows: Sequence[Row]) -> Row:
    """Return the row that others are compared with: ALiBi as trained, or the first one.

    ALiBi with an attention window has the same name, but comes second.
    """
    named = []
    for row in rows:
        assert row.key is not None
        if row.method_name == REFERENCE and not row.key.reading.overrides:
            named.append(row)
            if row.key.series.method == MethodSpec.plain("alibi"):
                return row
    return named[0] if named else rows[0]


def _results_in(row: Row, case: Case) -> Sequence[Result]:
    """Return the results of a row's seeds in a case; empty if it was not evaluated there."""
    for point in row.points:
        if point.case == case:
            return point.results
    return ()


def _have_same_documents(results: Iterable[Result]) -> bool:
    """Return True if all results of a case have losses of the same documents."""
    documents = set()
    for result in results:
        assert isinstance(result.values, TextValues)
        documents.add(result.values.document_tokens)
    return len(documents) == 1


def _losses(results: Iterable[Result], by_document: bool) -> _Losses | None:
    """Return the losses of a model's seeds, or None without any.

    Args:
        results: results of the model in one case, one for each seed.
        by_document: True to return the losses of each document, if they are known.
    """
    nats = []
    tokens: list[int] = []
    runs = []
    for result in results:
        values = result.values
        assert isinstance(values, TextValues)
        if by_document and values.document_bits:
            counts = np.array(values.document_tokens)
            scored = counts > 0  # a document may end before the scored range
            tokens = counts[scored].tolist()
            bits = np.array(values.document_bits)[scored] / tokens  # (K,)
        else:
            tokens = [values.tokens or 1]
            bits = np.array([values.loss_bits])
        nats.append(bits * math.log(2))
        runs.append((result.series, result.seed))
    if not nats:
        return None
    return _Losses(np.stack(nats), np.array(tokens, dtype=float), runs)


def _difference_text(first: _Losses | None, second: _Losses | None) -> str:
    """Return a difference in percent and its interval; a dash without two seeds on each side."""
    estimate = _difference(first, second)
    return markdown.NOTHING if estimate is None else format_difference(estimate)


def _difference(first: _Losses | None, second: _Losses | None) -> Difference | None:
    """Estimate the difference of the losses of two models; None without two seeds on each side.

    The evaluations of two checkpoints of a run, or of one as trained and with other options, are
    paired. A side may lack seeds of the other one. If both have seeds of their own, all seeds
    count, as if the runs of both sides were independent.

    Args:
        first: losses of a model, or None if there are none.
        second: losses of the model that it is compared with.
    """
    if first is None or second is None:
        return None
    shared = [run for run in first.runs if run in second.runs]
    is_paired = len(shared) in (len(first.runs), len(second.runs))
    if is_paired:
        first = first.of_runs(shared)
        second = second.of_runs(shared)
    return difference(first.nats, second.nats, first.tokens, same_models=is_paired)


def format_difference(estimate: Difference) -> str:
    """Return a difference of log perplexity in percent, such as ``+2.1% (-0.3 … +4.6)``."""
    low, high = estimate.interval()
    value = nats_to_percent(estimate.value)
    return f"{value:+.1f}% ({nats_to_percent(low):+.1f} … {nats_to_percent(high):+.1f})"
