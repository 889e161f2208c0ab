"""Cells of shards, and their merger into the results of a single process."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence, Set
from fractions import Fraction

from ..errors import BadInput
from ..results.schema import merge_documents, new_document
from .measure import LossSum, document_cell, evaluation_cell, position_cell
from .text import TextSize

#: The keys that say which measurement a shard is a part of.
_MEASUREMENT = ("checkpoint", "subset", "length", "stride")
#: Keys in which its shards may differ; all others must agree.
_OF_ONE_SHARD = {
    *("shard", "shard_nats", "tokens", "loss_bits", "perplexity"),
    *("document_tokens", "document_bits"),
    *("seconds", "tokens_per_second", "peak_memory_mb"),
}
_OF_THE_SPLIT = {"split_tokens", "split_words", "split_bytes"}


def shard_cell(sums: Sequence[LossSum], whole: int, text: TextSize) -> dict:
    """A cell of a shard: its own results, and what merging needs.

    ``shard_nats`` are the exact sums of the shard's losses, of each document or of all, as fractions,
    so that the sum over all shards equals the result of a single process. The number of tokens and
    the size of the text are those of all shards.
    """
    cell = evaluation_cell(LossSum.over(sums), TextSize())
    cell |= {"shard_nats": " ".join(str(each.nats) for each in sums), "split_tokens": whole}
    if text.words:
        cell["split_words"] = text.words
    if text.bytes:
        cell["split_bytes"] = text.bytes
    return cell


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
    measurements: dict[tuple, list[dict]] = {}
    for cell in whole["cells"]:
        _check_shard(cell)
        measurements.setdefault(tuple(cell[key] for key in _MEASUREMENT), []).append(cell)
    cells = []
    for parts in measurements.values():
        _check_complete(parts)
        buckets: dict[int, list[dict]] = {}
        for part in parts:
            buckets.setdefault(part.get("position_from", 0), []).append(part)
        cells += [_merge_cells(kind, bucket) for bucket in buckets.values()]
    return new_document(kind, whole["corpus"], whole["provenance"], cells)


def _check_shard(cell: dict) -> None:
    """Raises BadInput unless the cell is one that :func:`shard_cell` makes."""
    if "shard" not in cell:
        raise BadInput(f"{_name(cell)} is a whole result, not a shard; merge only shards.")
    found = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", cell["shard"])
    if not found or int(found[1]) > int(found[2]):  # 01/2 would be counted beside 1/2
        raise BadInput(f"{_name(cell)}: '{cell['shard']}' is no shard; expected i/n, as in 1/2.")
    bits = float(sum(_nats(cell))) / cell["tokens"] / math.log(2)
    if not math.isclose(bits, cell["loss_bits"], rel_tol=1e-9):
        raise BadInput(
            f"{_name(cell)}: shard_nats of shard {cell['shard']} is {bits} bits per token, but its "
            f"loss_bits is {cell['loss_bits']}."
        )


def _check_complete(parts: list[dict]) -> None:
    """Raises BadInput unless the shards are of one measurement and cover all tokens of its split."""
    _shared(parts, but={"position_from", "position_to"})
    counts = {part["shard"].partition("/")[2] for part in parts}
    if len(counts) > 1:
        raise BadInput(
            f"{_name(parts[0])} was split into {' and into '.join(sorted(counts))} shards; merge "
            "shards of one sweep."
        )
    found, whole = sum(part["tokens"] for part in parts), parts[0]["split_tokens"]
    if found != whole:
        present = ", ".join(sorted({part["shard"] for part in parts}))
        raise BadInput(
            f"{_name(parts[0])} has {found} of {whole} tokens in shards {present}; give the "
            "results of all shards."
        )


def _shared(parts: list[dict], but: Set[str] = frozenset()) -> dict:
    """The keys and values that shards have in common; all but their share and ``but``.

    Raises:
        BadInput: they differ in one.
    """
    one, *others = (
        {key: value for key, value in part.items() if key not in _OF_ONE_SHARD | but}
        for part in parts
    )
    for other in others:
        for key in sorted(one.keys() | other.keys()):
            if one.get(key) != other.get(key):
                raise BadInput(
                    f"The shards of {_name(parts[0])} differ in {key} ({one.get(key)} and "
                    f"{other.get(key)}), so they are not of one sweep."
                )
    return one


def _merge_cells(kind: str, parts: list[dict]) -> dict:
    shared = _shared(parts)
    nats = [sum(each, Fraction(0)) for each in zip(*map(_nats, parts), strict=True)]
    total = LossSum(sum(nats, Fraction(0)), sum(part["tokens"] for part in parts))
    text = TextSize(shared.get("split_words"), shared.get("split_bytes"))
    cell = {key: value for key, value in shared.items() if key not in _OF_THE_SPLIT}
    cell |= evaluation_cell(total, text) if kind == "evaluation" else position_cell(total)
    if "document_tokens" in parts[0]:
        counts = [
            sum(each) for each in zip(*(part["document_tokens"] for part in parts), strict=True)
        ]
        cell |= document_cell([LossSum(*each) for each in zip(nats, counts, strict=True)])
    if "seconds" in parts[0]:
        cell["seconds"] = round(sum(part["seconds"] for part in parts), 6)
        cell["tokens_per_second"] = round(total.tokens / cell["seconds"], 1)
        cell["peak_memory_mb"] = max(part["peak_memory_mb"] for part in parts)
    return cell


def _nats(cell: dict) -> list[Fraction]:
    return [Fraction(each) for each in cell["shard_nats"].split()]


def _name(cell: dict) -> str:
    return "'{checkpoint}' on {subset} at length {length}, stride {stride},".format(**cell)
