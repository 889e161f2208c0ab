"""Cells of shards, and their merger into the results of a single process."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction

from ..errors import BadInput
from ..results.schema import merge_documents, new_document
from .measure import LossSum, TextSize, document_cell, evaluation_cell, position_cell

#: The keys that say which measurement a shard is a part of.
_MEASUREMENT = ("checkpoint", "subset", "length", "stride")
_POSITION = {"position_from", "position_to"}
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
    whole = merge_documents(documents)
    kind, cells = whole["kind"], []
    measurements: dict[tuple, list[dict]] = defaultdict(list)
    try:
        for cell in whole["cells"]:
            measurements[tuple(cell[key] for key in _MEASUREMENT)].append(cell)
        for parts in measurements.values():
            check_shards(parts)
            buckets: dict[int, list[dict]] = defaultdict(list)
            for part in parts:
                buckets[part.get("position_from", 0)].append(part)
            cells += [_merge_cells(kind, bucket) for bucket in buckets.values()]
    except BadInput:
        raise
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise BadInput(
            "The files do not hold shards as `alibi-fairseq eval --shard` writes them "
            f"({type(error).__name__}: {error})."
        ) from error
    return new_document(kind, whole["corpus"], whole["provenance"], cells)


def check_shards(parts: list[dict]) -> None:
    """Raises BadInput unless shards are of one measurement and cover all tokens of its split."""
    name = "'{checkpoint}' on {subset} at length {length}, stride {stride},".format(**parts[0])
    for part in parts:
        # Not 01/2, which would be counted beside 1/2.
        shard = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", part.get("shard", ""))
        if not shard or int(shard[1]) > int(shard[2]):
            raise BadInput(f"{name} is no shard i/n of a result; merge only shards.")
        bits = float(sum(_nats(part))) / part["tokens"] / math.log(2)
        if not math.isclose(bits, part["loss_bits"], rel_tol=1e-9):
            raise BadInput(f"{name}: shard_nats and loss_bits of {part['shard']} are not the same.")
        one, other = (
            {**_shared(each), "number of shards": each["shard"].partition("/")[2]}
            for each in (part, parts[0])
        )
        if differing := {key for key, _ in one.items() ^ other.items()} - _POSITION:
            raise BadInput(
                f"The shards of {name} differ in {', '.join(sorted(differing))}, so they are not of "
                "one sweep."
            )
    found, whole = sum(part["tokens"] for part in parts), parts[0]["split_tokens"]
    if found != whole:
        present = ", ".join(sorted({part["shard"] for part in parts}))
        raise BadInput(
            f"{name} has {found} of {whole} tokens in shards {present}; give the results of all "
            "shards."
        )


def _merge_cells(kind: str, parts: list[dict]) -> dict:
    shared = _shared(parts[0])
    nats = [sum(each, Fraction(0)) for each in zip(*map(_nats, parts), strict=True)]
    total = LossSum(sum(nats, Fraction(0)), sum(part["tokens"] for part in parts))
    text = TextSize(shared.get("split_words"), shared.get("split_bytes"))
    cell = {key: value for key, value in shared.items() if key not in _OF_THE_SPLIT}
    cell |= evaluation_cell(total, text) if kind == "evaluation" else position_cell(total)
    if "document_tokens" in parts[0]:
        counts = map(sum, zip(*(part["document_tokens"] for part in parts), strict=True))
        cell |= document_cell([LossSum(*each) for each in zip(nats, counts, strict=True)])
    if "seconds" in parts[0]:
        cell["seconds"] = round(sum(part["seconds"] for part in parts), 6)
        cell["tokens_per_second"] = round(total.tokens / cell["seconds"], 1)
        cell["peak_memory_mb"] = max(part["peak_memory_mb"] for part in parts)
    return cell


def _shared(part: dict) -> dict:
    return {key: value for key, value in part.items() if key not in _OF_ONE_SHARD}


def _nats(part: dict) -> list[Fraction]:
    return [Fraction(each) for each in part["shard_nats"].split()]
