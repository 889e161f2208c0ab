"""Conditions of results as text: what readers need to know to compare them with others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .conditions import FACTS, differences, fact_text, list_facts
from .rows import Row
from .table import Column, Table

#: Largest number of values that a caption lists.
MAX_LISTED = 4


def conditions(rows: Sequence[Row]) -> str:
    """Return what all rows have in common, as a sentence without a period.

    :func:`conditions_table` has the rest. The paper's numbers are left out.
    """
    rows = _ours(rows)
    parts = [_listed(_corpora(rows))]
    for values in _facts(rows):
        if len(values) == 1:
            parts.append(_listed(values))
    rates = _learning_rates(rows)
    if len(rates) == 1:
        parts.append(f"learning rate {rates.pop()}")
    parts += _seeds_texts(rows)
    common = "; ".join(part for part in parts if part)
    return f"All models: {common}" if common else ""


def conditions_table(rows: Sequence[Row]) -> Table[int] | None:
    """Return the conditions that differ between rows; None if there are none.

    The table has a row for each model, whose variants share it, and a column for each condition
    that differs, unless the labels of all rows state it.
    """
    by_model: dict[tuple, Row] = {}
    for row in _ours(rows):
        assert row.model is not None
        reading = row.model.reading
        by_model.setdefault((row.model.series.id, reading.at, reading.precision, row.name), row)
    models = list(by_model.values())
    different = _different_conditions(models)
    if not different:
        return None
    columns = [Column[int]("", lambda index: models[index].label)]
    for name, texts in different.items():
        columns.append(Column(name, texts.__getitem__))
    caption = "Models differ in these conditions"
    return Table(columns, range(len(models)), left=len(columns), caption=caption)


def _different_conditions(models: Sequence[Row]) -> dict[str, list[str]]:
    """Return the conditions that differ between the models, or those of one name."""
    different = differences([row.model for row in models if row.model is not None])
    for name in {row.name for row in models}:
        same_name = [row for row in models if row.name == name]
        found = differences([row.model for row in same_name if row.model], of_one_method=True)
        for condition, texts in found.items():
            if condition in different:
                continue
            texts_by_row = {id(row): text for row, text in zip(same_name, texts, strict=True)}
            different[condition] = [texts_by_row.get(id(row), "") for row in models]
    stated = frozenset.intersection(*(row.stated for row in models)) if models else frozenset()
    return {name: texts for name, texts in different.items() if name not in stated}


def caption(rows: Sequence[Row]) -> str:
    """Return the caption of a figure: the conditions of its lines, and those near chance.

    Its panels may have different models, so the caption lists the values of each condition.
    """
    ours = _ours(rows)
    parts = [_listed(_corpora(ours))]
    parts += [_listed(values) for values in _facts(ours)]
    parts += _seeds_texts(ours)
    near_chance = {row.label for row in ours if any(point.is_near_chance for point in row.points)}
    if len(near_chance) > MAX_LISTED:
        parts.append(f"near chance: {len(near_chance)} models")
    elif near_chance:
        parts.append(f"near chance: {_listed(near_chance)}")
    return "; ".join(part for part in parts if part)


def _ours(rows: Iterable[Row]) -> list[Row]:
    """Return the rows without the paper's."""
    return [row for row in rows if row.model is not None]


def _corpora(rows: Iterable[Row]) -> set[str]:
    """Return the names of the texts of rows."""
    return {point.case.corpus for row in rows for point in row.points}


def _facts(rows: Iterable[Row]) -> list[set[str]]:
    """Return the values of each fact of the models, as parts of a sentence."""
    facts = [list_facts(row.model) for row in rows if row.model is not None]
    return [{fact_text(name, of_model[name]) for of_model in facts} for name in FACTS]


def _learning_rates(rows: Iterable[Row]) -> set[str]:
    """Return the learning rates of the models; an unknown one is left out."""
    rates = set()
    for row in rows:
        if row.model is not None and row.model.is_known:
            rates.add(str(row.model.series.settings.get("optimization.lr", "")))
    return rates - {""}


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
