"""Cells of results: each is the merger of the shards of a measurement, of which there may be one."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction

from ..errors import BadInput
from ..results.schema import merge_documents, new_document
from .measure import LossSum, TextSize

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


def shard_cell(sums: Sequence[LossSum], documents: bool, whole: int, text: TextSize) -> dict:
    """A cell of a shard: its own results, and what merging needs.

    ``shard_nats`` are the exact sums of the shard's losses, of each document or of all, as fractions,
    so that the sum over all shards equals the result of a single process.

    Args:
        sums: of each document or of all.
        documents: also give those of each document.
        whole, text: scored tokens and size of the text of all shards.
    """
    cell = _losses(sums, documents) | {"shard_nats": " ".join(str(each.nats) for each in sums)}
    whole_text = {"split_tokens": whole, "split_words": text.words, "split_bytes": text.bytes}
    return cell | {key: value for key, value in whole_text.items() if value}


def merge_cells(parts: list[dict]) -> dict:
    """The cell of a measurement, from those of its shards or of the only one.

    Losses are added exactly. Seconds are summed, so tokens per second are those of one process; peak
    memory is the maximum.
    """
    shared = _shared(parts[0])
    nats = [sum(each, Fraction(0)) for each in zip(*map(_nats, parts), strict=True)]
    documents = "document_tokens" in parts[0]
    counts = [part["document_tokens"] if documents else [part["tokens"]] for part in parts]
    sums = [LossSum(*each) for each in zip(nats, map(sum, zip(*counts, strict=True)), strict=True)]
    cell = {key: value for key, value in shared.items() if key not in _OF_THE_SPLIT}
    cell |= _losses(sums, documents)
    if "position_from" in cell:
        del cell["perplexity"]
    total = LossSum.over(sums)
    if words := shared.get("split_words"):
        cell |= {"words": words, "word_perplexity": math.exp(float(total.nats) / words)}
    if size := shared.get("split_bytes"):
        cell |= {"bytes": size, "bits_per_byte": total.bits / size}
    if "seconds" in parts[0]:
        cell["seconds"] = round(sum(part["seconds"] for part in parts), 6)
        cell["tokens_per_second"] = round(total.tokens / cell["seconds"], 1)
        cell["peak_memory_mb"] = max(part["peak_memory_mb"] for part in parts)
    return cell


def _losses(sums: Sequence[LossSum], documents: bool) -> dict:
    """``tokens, loss_bits, perplexity``, and of each document ``document_tokens, document_bits``."""
    total = LossSum.over(sums)
    mean = float(total.nats) / total.tokens
    cell: dict = {"tokens": total.tokens, "loss_bits": mean / math.log(2)}
    cell["perplexity"] = math.exp(mean)
    if documents:  # from these come intervals of a bootstrap
        cell["document_tokens"] = [each.tokens for each in sums]
        cell["document_bits"] = [round(each.bits, 4) for each in sums]
    return cell


def merge_shards(documents: list[dict]) -> dict:
    """Merge the documents of all shards into one.

    Raises:
        BadInput: a shard is missing, or they are not those that ``eval --shard`` writes of one sweep.
    """
    whole = merge_documents(documents)
    cells: list[dict] = []
    measurements: dict[tuple, list[dict]] = defaultdict(list)
    try:
        for cell in whole["cells"]:
            measurements[tuple(cell[key] for key in _MEASUREMENT)].append(cell)
        for parts in measurements.values():
            check_shards(parts)
            buckets: dict[int, list[dict]] = defaultdict(list)
            for part in parts:
                buckets[part.get("position_from", 0)].append(part)
            cells += map(merge_cells, buckets.values())
    except BadInput:
        raise
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise BadInput(
            "The files do not hold shards as `alibi-fairseq eval --shard` writes them "
            f"({type(error).__name__}: {error})."
        ) from error
    return new_document(whole["kind"], whole["corpus"], whole["provenance"], cells)


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


def _shared(part: dict) -> dict:
    return {key: value for key, value in part.items() if key not in _OF_ONE_SHARD}


def _nats(part: dict) -> list[Fraction]:
    return [Fraction(each) for each in part["shard_nats"].split()]
