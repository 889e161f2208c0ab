"""Merge the shards of a sweep into the results of a single process."""

from __future__ import annotations

import re
from fractions import Fraction

from ..errors import BadInput
from ..results.schema import cell_identity, merge_documents, new_document
from .cells import evaluation_cell, position_cell
from .measure import LossSum
from .text import TextSize

#: Keys in which shards may differ; all others must agree.
_OF_ONE_SHARD = {
    *("shard", "shard_nats", "tokens", "loss_bits", "perplexity"),
    *("seconds", "tokens_per_second", "peak_memory_mb"),
}
_OF_THE_SPLIT = {"split_tokens", "split_words", "split_bytes"}


def merge_shards(documents: list[dict]) -> dict:
    """Merge the documents of all shards into one.

    Losses are added exactly. Seconds are summed, so tokens per second are those of one process; peak
    memory is the maximum.

    Raises:
        BadInput: if a shard is missing, the shards do not belong to one sweep, or something in them
            is not what ``eval --shard`` writes.
    """
    try:
        return _merged(documents)
    except BadInput:
        raise
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise BadInput(
            "The files do not hold shards as `alibi-fairseq eval --shard` writes them "
            f"({type(error).__name__}: {error})."
        ) from error


def _merged(documents: list[dict]) -> dict:
    whole = merge_documents(documents)
    kind = whole["kind"]
    if kind not in ("evaluation", "position_loss"):
        raise BadInput(f"Shards hold evaluations or position losses, not results of kind '{kind}'.")
    groups: dict[tuple, list[dict]] = {}
    for cell in whole["cells"]:
        if "shard" not in cell:
            raise BadInput(f"{_name(cell)} is a whole result, not a shard; merge only shards.")
        if not re.fullmatch(
            r"[1-9]\d*/[1-9]\d*", cell["shard"]
        ):  # 01/2 would be counted beside 1/2
            raise BadInput(
                f"{_name(cell)}: '{cell['shard']}' is no shard; expected i/n, as in 1/2."
            )
        identity = cell_identity(kind, {**cell, "shard": None})
        groups.setdefault(identity, []).append(cell)
    _check_complete(whole["cells"])
    cells = [_merge_cells(kind, cells) for cells in groups.values()]
    return new_document(kind, whole["corpus"], whole["provenance"], cells)


def _check_complete(cells: list[dict]) -> None:
    """Raises BadInput unless every sweep covers all tokens of its split."""
    sweeps: dict[tuple, list[dict]] = {}
    for cell in cells:
        keys = ("checkpoint", "subset", "length", "stride")
        sweeps.setdefault(tuple(cell[key] for key in keys), []).append(cell)
    for parts in sweeps.values():
        counts = {cell["shard"].partition("/")[2] for cell in parts}
        if len(counts) > 1:
            raise BadInput(
                f"{_name(parts[0])} was split into {' and into '.join(sorted(counts))} shards; merge "
                "shards of one sweep."
            )
        found, whole = sum(cell["tokens"] for cell in parts), parts[0]["split_tokens"]
        if found != whole:
            present = ", ".join(sorted({cell["shard"] for cell in parts}))
            raise BadInput(
                f"{_name(parts[0])} has {found} of {whole} tokens in shards {present}; give the "
                "results of all shards."
            )


def _merge_cells(kind: str, parts: list[dict]) -> dict:
    shared = {key: value for key, value in parts[0].items() if key not in _OF_ONE_SHARD}
    for part in parts[1:]:
        for key in shared.keys() | part.keys() - _OF_ONE_SHARD:
            if shared.get(key) != part.get(key):
                raise BadInput(
                    f"The shards of {_name(part)} differ in {key} ({shared.get(key)} and "
                    f"{part.get(key)}), so they are not of one sweep."
                )
    nats = sum((Fraction(part["shard_nats"]) for part in parts), Fraction(0))
    total = LossSum(nats, sum(part["tokens"] for part in parts))
    text = TextSize(shared.get("split_words"), shared.get("split_bytes"))
    cell = {key: value for key, value in shared.items() if key not in _OF_THE_SPLIT}
    cell |= evaluation_cell(total, text) if kind == "evaluation" else position_cell(total)
    if "seconds" in parts[0]:
        cell["seconds"] = round(sum(part["seconds"] for part in parts), 6)
        cell["tokens_per_second"] = round(total.tokens / cell["seconds"], 1)
        cell["peak_memory_mb"] = max(part["peak_memory_mb"] for part in parts)
    return cell


def _name(cell: dict) -> str:
    return "'{checkpoint}' on {subset} at length {length}, stride {stride},".format(**cell)
