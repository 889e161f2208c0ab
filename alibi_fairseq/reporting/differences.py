"""Tables of the differences between models with their confidence intervals."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from ..results.estimates import Difference, difference
from ..results.groups import ModelMeasurements, group_by_evaluation, group_by_model
from ..results.record import Measurement
from . import markdown

#: Method that others are compared with, if it is among them; otherwise the first one.
REFERENCE = "ALiBi"

#: Standard deviation of log perplexity over seeds, at the training length and beyond it. These are
#: root mean squares over the methods with three seeds in results/small_models/primary; beyond the
#: training length, of the length where they are largest. A test computes them from the results.
SEED_SPREAD = {"at": 0.0109, "beyond": 0.0317}

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
    """Losses of one model at one length.

    Attributes:
        nats: (S, K) mean loss per token of each seed on each of K documents; K is 1 without losses
            by document.
        tokens: (K,) scored tokens of each document that has any.
        checkpoints: hash of the checkpoint of each seed, or None if it is unknown.
    """

    nats: np.ndarray
    tokens: np.ndarray
    checkpoints: Sequence[str | None]

    def of_checkpoints(self, checkpoints: Sequence[str]) -> _Losses:
        """Return the losses of some checkpoints, in their order."""
        rows = [self.checkpoints.index(checkpoint) for checkpoint in checkpoints]
        return self._replace(nats=self.nats[rows], checkpoints=checkpoints)


def difference_sections(measurements: Sequence[Measurement]) -> list[str]:
    """Return how far models are from a reference at each length, or why this is not known.

    Models are compared with the reference of the same training length, on windows that do not
    overlap. With one seed per model, the section states which differences mean nothing.

    Args:
        measurements: measurements of an evaluation.
    """
    sections = []
    for name, group in group_by_evaluation(measurements).items():
        without_overlap = [measured for measured in group if measured.nonoverlapping]
        models = group_by_model(without_overlap)
        if len(models) < 2:
            continue
        if all(_num_seeds(model) < 2 for model in models):
            return [one_seed_note()]
        sections += _group_sections(name, models)
    return sections


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


def _num_seeds(model: ModelMeasurements) -> int:
    return len({measured.model.seed for measured in model.measurements})


def _group_sections(name: str, models: Sequence[ModelMeasurements]) -> list[str]:
    """Return the table of the models that are evaluated alike, and its notes.

    Models of the same training length are compared with ALiBi, or with the first of them.

    Args:
        name: name of the evaluation, such as ``valid, non-overlapping``.
        models: models with several seeds.

    Returns:
        Caption, table, and note; empty if no two models have the same training length.
    """
    distinct_lengths: set[int] = set()
    by_train_length: dict[int, list[ModelMeasurements]] = defaultdict(list)
    for model in models:
        distinct_lengths.update(measured.length for measured in model.measurements)
        by_train_length[model.train_length or 0].append(model)
    lengths = sorted(distinct_lengths)
    rows = []
    num_documents = []
    for train_length in sorted(by_train_length):
        same_length = by_train_length[train_length]
        reference = _reference(same_length)
        for model in same_length:
            if model is reference:
                continue
            row = [f"{model.label} vs. {reference.label}"]
            for length in lengths:
                by_document = _have_same_documents(model, reference, length)
                first = _losses(model.measurements, length, by_document)
                second = _losses(reference.measurements, length, by_document)
                row.append(_difference_text(first, second))
                if first is not None:
                    num_documents.append(len(first.tokens))
            rows.append(row)
    if not rows:
        return []
    by_document = bool(num_documents) and min(num_documents) > 1
    if by_document:
        note = SEVERAL_SEEDS.format(what="seeds and documents")
    else:
        note = SEVERAL_SEEDS.format(what="seeds") + DOCUMENTS_ADVICE
    caption = f"Difference in perplexity on {name}"
    table = markdown.table(["evaluated at →", *map(str, lengths)], rows)
    return [f"{markdown.literal(caption)}:", table.rstrip(), note]


def _reference(models: Sequence[ModelMeasurements]) -> ModelMeasurements:
    """Return the model that others are compared with: ALiBi as trained, or the first model."""
    for model in models:
        if model.method_name == REFERENCE and not model.measurements[0].model.label:
            return model
    return models[0]


def _have_same_documents(first: ModelMeasurements, second: ModelMeasurements, length: int) -> bool:
    """Return True if all seeds of two models have losses of the same documents at a length."""
    documents = set()
    for measured in (*first.measurements, *second.measurements):
        if measured.length == length:
            documents.add((measured.documents_sha256, tuple(measured.document_tokens)))
    return len(documents) == 1


def _losses(measurements: Iterable[Measurement], length: int, by_document: bool) -> _Losses | None:
    """Return the losses of a model's seeds at a length, or None if it was not evaluated there.

    Args:
        measurements: measurements of the model, one for each seed and length.
        length: evaluation length in tokens.
        by_document: True to return the losses of each document, if they are known.
    """
    nats = []
    tokens: list[int] = []
    checkpoints = []
    for measured in measurements:
        if measured.length != length:
            continue
        if by_document and measured.document_bits:
            counts = np.array(measured.document_tokens)
            scored = counts > 0  # a document may end before the scored range
            tokens = counts[scored].tolist()
            bits = np.array(measured.document_bits)[scored] / tokens  # (K,)
        else:
            tokens = [measured.tokens or 1]
            bits = np.array([measured.loss_bits])
        nats.append(bits * math.log(2))
        checkpoints.append(measured.model.checkpoint_sha256)
    if not nats:
        return None
    return _Losses(np.stack(nats), np.array(tokens, dtype=float), checkpoints)


def _difference_text(first: _Losses | None, second: _Losses | None) -> str:
    """Return a difference in percent and its interval; a dash without two seeds on each side.

    A model and its variant are evaluations of the same checkpoints, which are paired.

    Args:
        first: losses of a model, or None if there are none.
        second: losses of the model that it is compared with.
    """
    if first is None or second is None:
        return markdown.NOTHING
    shared = []
    for checkpoint in first.checkpoints:
        if checkpoint is not None and checkpoint in second.checkpoints:
            shared.append(checkpoint)
    if shared:
        first = first.of_checkpoints(shared)
        second = second.of_checkpoints(shared)
    estimate = difference(first.nats, second.nats, first.tokens, same_models=bool(shared))
    if estimate is None:
        return markdown.NOTHING
    return format_difference(estimate)


def format_difference(estimate: Difference) -> str:
    """Return a difference of log perplexity in percent, such as ``+2.1% (-0.3 … +4.6)``."""
    low, high = estimate.interval()
    value = _percent(estimate.value)
    return f"{value:+.1f}% ({_percent(low):+.1f} … {_percent(high):+.1f})"


def _percent(nats: float) -> float:
    """Return the relative change of the perplexity in percent, given that of its logarithm."""
    return 100 * math.expm1(nats)
