"""From exact sums of losses to the cells of a results document."""

from __future__ import annotations

import math

from .measure import LossSum
from .text import TextSize


def evaluation_cell(total: LossSum, text: TextSize) -> dict:
    """``tokens, loss_bits, perplexity``, and per word and per byte where the text's size is known."""
    nats = float(total.nats)
    cell = position_cell(total)
    cell["perplexity"] = math.exp(nats / total.tokens)
    if text.words:
        cell |= {"words": text.words, "word_perplexity": math.exp(nats / text.words)}
    if text.bytes:
        cell |= {"bytes": text.bytes, "bits_per_byte": nats / math.log(2) / text.bytes}
    return cell


def position_cell(total: LossSum) -> dict:
    """``tokens, loss_bits``."""
    return {
        "tokens": total.tokens,
        "loss_bits": float(total.nats) / total.tokens / math.log(2),
    }


def shard_cell(total: LossSum, whole: int, text: TextSize) -> dict:
    """A cell of a shard: its own results, and what merging needs.

    ``shard_nats`` is the exact sum of the shard's losses as a fraction, so that the sum over all
    shards equals the result of a single process. The size of the text is that of the whole split.
    """
    cell = evaluation_cell(total, TextSize())
    cell |= {"shard_nats": str(total.nats), "split_tokens": whole}
    if text.words:
        cell["split_words"] = text.words
    if text.bytes:
        cell["split_bytes"] = text.bytes
    return cell
