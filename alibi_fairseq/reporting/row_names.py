"""Names of rows: what is added to those that several rows share.

Rows of one name state up to :data:`MAX_STATED` differing conditions in their labels. If more
differ, a letter leads to their row in the table of conditions.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from ..results.result import Result
from .differing_conditions import OPTIONS, UNKNOWN, differing_conditions, row_keys
from .facts import FACTS, fact_text, short_path
from .row import Row

#: Largest number of differing conditions that the labels of rows state.
MAX_STATED = 2


def letters() -> Iterator[str]:
    """Yield ``A`` to ``Z``, then ``A2`` to ``Z2``, and so on."""
    for repetition in itertools.count(1):
        for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ":
            yield letter if repetition == 1 else f"{letter}{repetition}"


def tell_apart(rows: Sequence[Row], unused_letters: Iterator[str]) -> list[Row]:
    """Return rows of one name and variant with what differs added to their variants.

    Rows without differing conditions state their run, or else their checkpoint.

    Args:
        rows: the rows.
        unused_letters: letters that no other row of the table has.
    """
    if len(rows) == 1:
        return list(rows)
    different = differing_conditions(row_keys(rows), of_one_method=True)
    by_row = list(zip(*different.values(), strict=True)) or [()] * len(rows)
    stated: frozenset[str] = frozenset()
    if len(different) <= MAX_STATED:
        stated = frozenset(different)
        texts = [_stated(different, values) for values in by_row]
    else:
        letter_of: dict[tuple, str] = {}
        for values in by_row:
            if values not in letter_of:
                letter_of[values] = next(unused_letters)
        texts = [letter_of[values] for values in by_row]
    told = []
    for row, text in zip(rows, _with_runs(rows, texts), strict=True):
        told.append(replace(row, variant=_joined([row.variant, text]), stated=stated))
    return told


def _stated(names: Iterable[str], values: Iterable[str]) -> str:
    """Return the differing conditions of a row."""
    return _joined(_condition_text(name, value) for name, value in zip(names, values))


def _condition_text(name: str, value: str) -> str:
    """Return a condition of a model as part of its label, such as ``lr 0.1``."""
    if value == UNKNOWN:
        return f"{value} {name}"
    if name == OPTIONS:
        return ""
    if name in FACTS:
        return fact_text(name, value)
    if value in ("true", "false"):
        return name if value == "true" else f"no {name}"
    return f"{name} {value}"


def _with_runs(rows: Sequence[Row], texts: Sequence[str]) -> list[str]:
    """Add the run to the texts of rows that are alike, or the checkpoint."""
    alike: dict[str, list[Row]] = defaultdict(list)
    for row, text in zip(rows, texts, strict=True):
        alike[text].append(row)
    names = {text: iter(_run_names(members)) for text, members in alike.items()}
    return [_joined([text, next(names[text])]) for text in texts]


def _run_names(rows: Sequence[Row]) -> list[str]:
    """Return what distinguishes each run from those that are alike; empty for the only one."""
    if len(rows) == 1:
        return [""]
    checkpoint_names = _distinct_checkpoint_names([row.results[0] for row in rows])
    is_repeated = len({(key.series, key.reading) for key in row_keys(rows)}) == 1
    names = []
    for key, checkpoint_name in zip(row_keys(rows), checkpoint_names, strict=True):
        if is_repeated and not key.alone:
            names.append(f"run {key.run + 1}" if key.run else "")
        else:
            names.append(checkpoint_name)
    return names


def _distinct_checkpoint_names(results: Sequence[Result]) -> list[str]:
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
