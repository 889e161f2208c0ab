"""What the models of a table or figure have in common, in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .facts import FACTS, fact_text, list_facts
from .row import Point, Row, common_train_length

#: Largest number of values, or of models, that a sentence lists.
MAX_LISTED = 4
#: Facts of models that figures state.
FIGURE_FACTS = ("size", "updates")


def common_conditions(rows: Sequence[Row]) -> str:
    """Return what all rows have in common, as a sentence without a period.

    :func:`.differing_conditions_table` has the rest. The paper's numbers are left out.
    """
    rows = _ours(rows)
    parts = [_listed(_corpora(rows))]
    for values in _facts(rows).values():
        if len(values) == 1:
            parts.append(_listed(values))
    rates = _learning_rates(rows)
    if len(rates) == 1:
        parts.append(f"learning rate {rates.pop()}")
    parts += _seeds_texts(rows)
    common = "; ".join(part for part in parts if part)
    return f"All models: {common}" if common else ""


def has_several_seed_counts(points: Iterable[Point]) -> bool:
    """Return True if the conditions don't say how many seeds each mean and deviation is over."""
    return len({point.seeds for point in points if point.seeds > 1}) > 1


def training_in_words(rows: Iterable[Row]) -> str:
    """Return the training length of all rows in the words of figures; empty if they differ."""
    train_length = common_train_length(rows)
    if train_length is None:
        return ""
    return f"trained at L = {train_length:,}".replace(" = ", "\u00a0=\u00a0")  # not broken there


def figure_conditions(rows: Sequence[Row], text: Sequence[str] = ()) -> str:
    """Return what all lines of a figure have in common: text, models, and number of seeds.

    What differs is left out. Of the paper's numbers, only the training length counts.

    Args:
        rows: the lines.
        text: what else is known of the text, after its name.
    """
    ours = _ours(rows)
    facts = _facts(ours)
    models = [training_in_words(rows)]
    for name in FIGURE_FACTS:
        if len(facts[name]) == 1:
            models.append(_listed(facts[name]))
    parts = [_listed(_corpora(ours)), *text]
    sentence = [", ".join(filter(None, words)) for words in (parts, models)]
    return "; ".join(filter(None, [*sentence, *_seeds_texts(ours)]))


def _ours(rows: Iterable[Row]) -> list[Row]:
    """Return the rows without the paper's."""
    return [row for row in rows if row.key is not None]


def _corpora(rows: Iterable[Row]) -> set[str]:
    """Return the names of the texts of rows."""
    return {point.case.corpus for row in rows for point in row.points}


def _facts(rows: Iterable[Row]) -> dict[str, set[str]]:
    """Return the values of the models by name of the fact, as parts of a sentence."""
    facts = [list_facts(row.key) for row in rows if row.key is not None]
    return {name: {fact_text(name, of_model[name]) for of_model in facts} for name in FACTS}


def _learning_rates(rows: Iterable[Row]) -> set[str]:
    """Return the learning rates of the models; an unknown one is left out."""
    rates = set()
    for row in rows:
        if row.key is not None and row.key.series.settings_known:
            rates.add(str(row.key.series.learning_rate))
    return rates


def _seeds_texts(rows: Iterable[Row]) -> list[str]:
    """Return the parts about numbers of seeds that were averaged."""
    counts: set[int] = set()
    for row in rows:
        counts.update(point.seeds for point in row.points)
    several = [str(count) for count in sorted(counts) if count > 1]
    if not several:
        return ["a single seed"] if counts else []
    texts = [f"mean and standard deviation of {' or '.join(several)} seeds"]
    if 1 in counts:
        texts.append("a single seed for some models")
    return texts


def _listed(names: set[str]) -> str:
    """Return the names, or their number if it is above ``MAX_LISTED``."""
    known = sorted(name for name in names if name)
    if len(known) > MAX_LISTED:
        return f"{len(known)} different"
    return ", ".join(known)
