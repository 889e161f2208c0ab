"""Results of a model, their seeds, and the rule that says which results are known.

The identity of a result has four parts:

- The *series* is how the model was trained: every setting but the seed.
- The *reading* is what was read of the trained model: which checkpoint, in which precision, and
  with which options changed.
- The *seed* is that of the training.
- The *case* is what was predicted: which tokens of which text, in which windows.

What follows from the identity, or compares more or less than it:

=====================  =============================================  ===========================
question               what must be equal                             decided by
=====================  =============================================  ===========================
averaged as seeds?     all but the seeds, which are known and differ  :func:`group_seeds`
in one row?            also not the case                              :class:`RowKey`
measured twice?        identity and checkpoint                        :func:`distinct`
of the same weights?   series, seed, and checkpoint                   :func:`identify_checkpoint`
already known?         identity, and the document boundaries and      :func:`is_wanted`
                       the checkpoint that are wanted
replaced in its file?  identity, and the checkpoint or its path       :func:`replaces`
=====================  =============================================  ===========================
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal, NamedTuple

from ..errors import UserInputError
from .case import Case
from .json_types import STORED, NonEmptyStr, NonNegativeInt, Sha256
from .series import Reading, Series
from .values import Cost, ProbeValues, TextSummary, TextValues

#: 0.1% of a perplexity, in bits; of an accuracy, about as much.
_LARGEST_DISAGREEMENT = math.log2(1.001)


class Identity(NamedTuple):
    """What was measured of which model."""

    series: Series
    reading: Reading
    seed: int | None
    case: Case


@dataclass(frozen=True)
class Result:
    """Value of one model on one case.

    Attributes:
        series: how the model was trained.
        reading: which of its weights were read, and how.
        seed: seed of the run; None if unknown.
        case: which tokens were predicted.
        values: measured values; None if the run diverged.
        checkpoint: path of the checkpoint when it was read, for messages.
        checkpoint_sha256: hash of the checkpoint, or of all parts of a Hugging Face folder; None
            for a validation during training.
        status: ``diverged`` if the training ended with a loss that is not finite.
        updates: update count of the checkpoint; those of the best checkpoints differ between seeds.
        cost: time and memory.
        text: what a manifest says about the text.
    """

    __pydantic_config__ = STORED

    series: Series
    reading: Reading
    seed: NonNegativeInt | None
    case: Case
    values: TextValues | ProbeValues | None
    checkpoint: NonEmptyStr | None = None
    checkpoint_sha256: Sha256 | None = None
    status: Literal["", "diverged"] = ""
    updates: NonNegativeInt | None = None
    cost: Cost = Cost()
    text: TextSummary = TextSummary()

    @property
    def identity(self) -> Identity:
        """What was measured of which model."""
        return Identity(self.series, self.reading, self.seed, self.case)


class RowKey(NamedTuple):
    """What the results in a row of a table share, whatever their cases.

    Attributes:
        series: how the models were trained.
        reading: which of their weights were read, and how.
        run: 0, except that a seed that was trained twice has runs 0 and 1, which are not averaged.
        alone: seed and checkpoint of a result whose seed or text is unknown. It is never averaged,
            so no other model is in its row. Empty for all other results.
    """

    series: Series
    reading: Reading
    run: int = 0
    alone: str = ""


def distinct(results: Iterable[Result]) -> list[Result]:
    """Return results without repetitions: of an identity and checkpoint, that with most details.

    Raises:
        UserInputError: two evaluations of a checkpoint have different values.
    """
    by_key: dict[tuple, Result] = {}
    for result in results:
        key = (result.identity, identify_checkpoint(result))
        first = by_key.setdefault(key, result)
        if first.values is None or result.values is None:
            continue
        if not agree(first.values, result.values):
            raise UserInputError(
                f"Two results of '{result.checkpoint}' (seed {result.seed}) at length "
                f"{result.case.length} differ. Leave one of the files out."
            )
        if first.values.details < result.values.details:
            by_key[key] = result
    return list(by_key.values())


def agree(first: TextValues | ProbeValues, second: TextValues | ProbeValues) -> bool:
    """Return True if values may be of one checkpoint and case, measured on different machines."""
    return abs(first.outcome - second.outcome) <= _LARGEST_DISAGREEMENT


def group_seeds(results: Iterable[Result]) -> dict[tuple[RowKey, Case], list[Result]]:
    """Group results whose values are averaged: only their seeds differ, all of which are known.

    Repetitions and divergences are left out.

    Raises:
        UserInputError: two evaluations of one checkpoint have different values.
    """
    runs: dict[tuple, list[str]] = defaultdict(list)
    groups: dict[tuple[RowKey, Case], list[Result]] = defaultdict(list)
    for result in distinct(results):
        if result.values is None:
            continue
        checkpoint = identify_checkpoint(result)
        run = 0
        alone = ""
        if result.seed is None or result.case.text is None:
            alone = f"{result.seed} {checkpoint}"
        else:
            same_seed = (result.series, result.reading, result.seed)
            # Validations have no checkpoint hash, so their loss tells trainings apart, which is
            # different in every case.
            case = result.case if result.case.kind == "validation" else None
            known = runs[same_seed, case]
            if checkpoint not in known:
                known.append(checkpoint)
            run = known.index(checkpoint)
        row = RowKey(result.series, result.reading, run, alone)
        groups[row, result.case].append(result)
    return dict(groups)


def identify_checkpoint(result: Result) -> str:
    """Return what tells the weights of a result from those of other runs with its seed.

    It is the hash of the checkpoint, or else its path and update count. Without any checkpoint, it
    is the loss of a validation, which differs between trainings.
    """
    if result.checkpoint_sha256 is not None:
        return result.checkpoint_sha256
    if result.checkpoint is not None:
        return f"{result.checkpoint} after {result.updates} updates"
    if result.values is None or result.case.kind != "validation":
        return ""
    return str(result.values.outcome)


def is_wanted(
    result: Result,
    identity: Identity,
    documents: str | None = None,
    checkpoint_sha256: str | None = None,
) -> bool:
    """Return True if a result has an identity and what else is wanted of it.

    Args:
        documents: boundaries of the documents whose losses are wanted; None if none are.
        checkpoint_sha256: hash of the checkpoint; None if any will do. A result of another
            checkpoint is out of date.
    """
    if result.identity != identity:
        return False
    if identity.case.text is None or result.values is None:
        return False
    if documents not in (None, result.values.documents):
        return False
    return checkpoint_sha256 in (None, result.checkpoint_sha256)


def replaces(new: Result, old: Result) -> bool:
    """Return True if a results file has a new result in place of an old one.

    They have the same identity, and are of one checkpoint or of two that had the same path.
    """
    if new.identity != old.identity:
        return False
    if new.checkpoint == old.checkpoint:
        return True
    has_equal_name = _checkpoint_name(new) == _checkpoint_name(old)
    return has_equal_name and new.checkpoint_sha256 == old.checkpoint_sha256


def _checkpoint_name(result: Result) -> str:
    """Return the file name of the checkpoint, whose folder may have been moved."""
    return PurePath(result.checkpoint or "").name
