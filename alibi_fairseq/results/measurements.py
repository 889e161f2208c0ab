"""Measurements that tables and figures share: ours, from result records, and the paper's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

from .identity import Role, identity

#: Fraction of the bits per token of guessing, above which a model is near chance.
CHANCE_FRACTION = 0.9


class TextKey(NamedTuple):
    """Identity of the predicted tokens. None means unknown, or no limit of the scored range.

    Attributes:
        documents: how documents are separated. Unless a range of each document is scored, it
            matters only for a raw text, whose tokens do not span documents.
        tokens_sha256: hash of the token IDs of a raw text.
        bytes: size of a raw text. It replaces ``tokens`` and ``tokens_sha256`` where tokenizers may
            differ (:attr:`Measurement.raw_text_key`).
    """

    subset: str
    data_sha256: str | None
    tokens: int | None
    documents: str | None
    score_from: int | None
    score_to: int | None
    tokens_sha256: str | None = None
    bytes: int | None = None

    @property
    def scored(self) -> str:
        """The scored range in words."""
        if self.score_from is None and self.score_to is None:
            if self.documents:
                return f"all scored, tokenized by document ({self.documents})"
            return "all scored"
        begin = self.score_from or 0
        end = "the end" if self.score_to is None else self.score_to
        scored = f"tokens {begin} to {end}"
        if self.documents:
            scored += f" of each document ({self.documents})"
        return scored


@dataclass(frozen=True, eq=False)
class Measurement:
    """Perplexity of one model on one split at one length and stride, or accuracy on a probe.

    Two measurements are equal if they have the same identity (:func:`.identity.identity`), even if
    their outcomes differ.

    Attributes:
        subset: split; empty for a probe.
        perplexity: None for a probe, and if the paper's run failed.
        display_name: name that a plugin gives its position method.
        plugin_sha256: hash of the source files of the plugin; None for a method of this package.
        depth: depth of the repeated block in the sequences of a probe.
        accuracy: accuracy on a probe.
        different_units_reason: reason why perplexities are in different units from the paper's.
        incomparability_reason: reason why the perplexity is not comparable with the paper's.
        status: reason why the paper has no perplexity.
        seeds: number of seeds that were averaged.
        spread: standard deviation over seeds.
        position_ends: last position of each bucket of the loss by position.
        position_tokens: number of tokens of each bucket.
        position_bits: loss of each bucket in bits.
        position_spread: standard deviation of ``position_bits`` over seeds.
    """

    position_method: str
    train_length: int
    length: int
    stride: int
    subset: str
    perplexity: float | None = None
    corpus: str | None = None
    tokens: int | None = None
    bytes: int | None = None
    data_sha256: str | None = None
    tokens_sha256: str | None = None
    model: str | None = None
    updates: int | None = None
    checkpoint: str | None = None
    checkpoint_sha256: str | None = None
    precision: str | None = None
    model_overrides: str | None = None
    display_name: str | None = None
    plugin_sha256: str | None = None
    label: str | None = None
    layers: int | None = None
    width: int | None = None
    parameters: int | None = None
    vocabulary: int | None = None
    seed: int | None = None
    lr: float | None = None
    memory_length: int | None = None
    train_command: str | None = None
    documents: str | None = None
    score_from: int | None = None
    score_to: int | None = None
    tokens_per_second: float | None = None
    tokens_per_second_batch_1: float | None = None
    bits_per_byte: float | None = None
    longest_window: int | None = None
    depth: float | None = None
    accuracy: float | None = None
    different_units_reason: str = ""
    incomparability_reason: str = ""
    status: str = ""
    position_ends: Sequence[int] = ()
    position_tokens: Sequence[int] = ()
    position_bits: Sequence[float] = ()
    position_spread: Sequence[float] = ()
    seeds: int = 1
    spread: float | None = None

    @property
    def text_key(self) -> TextKey:
        """Key of the predicted tokens. Only perplexities of the same tokens are comparable."""
        has_range = self.score_from is not None or self.score_to is not None
        return TextKey(
            subset=self.subset,
            data_sha256=self.data_sha256,
            tokens=self.tokens,
            documents=self.documents if has_range else None,
            score_from=self.score_from,
            score_to=self.score_to,
            tokens_sha256=self.tokens_sha256,
        )

    @property
    def is_raw_text(self) -> bool:
        """True if the text was tokenized for the evaluation.

        ``data_sha256`` is then the hash of the text instead of the binary data.
        """
        return self.tokens_sha256 is not None

    @property
    def raw_text_key(self) -> TextKey:
        """Key of the predicted text, whatever its tokenizer.

        Bits per byte of the same text are comparable between tokenizers. A tokenizer gives other
        tokens to a whole text than to its documents, so these are different texts.
        """
        return self.text_key._replace(
            tokens=None, tokens_sha256=None, bytes=self.bytes, documents=self.documents
        )

    def identity(self, *roles: Role) -> tuple:
        """Return :func:`.identity.identity`, and for ``Role.MEASUREMENT`` also the data's hash."""
        pairs = identity(vars(self), *roles)
        if not roles or Role.MEASUREMENT in roles:
            return (*pairs, ("data_sha256", self.data_sha256))
        return pairs

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Measurement) and self.identity() == other.identity()

    def __hash__(self) -> int:
        return hash(self.identity())

    @property
    def is_past_end(self) -> bool:
        """True if one window has the whole text, which is shorter than the evaluation length.

        Longer windows repeat its measurement. Sliding windows may be short near the end of a longer
        text, too, and then have other measurements at other lengths.
        """
        if self.longest_window is None or not self.nonoverlapping:
            return False
        return self.longest_window < self.length

    @property
    def nonoverlapping(self) -> bool:
        """True if every window scores all of its tokens."""
        return self.stride == self.length

    @property
    def window_kind(self) -> str:
        """The kind of windows, which distinguishes two measurements at one length."""
        return "non-overlapping" if self.nonoverlapping else f"S={self.stride}"


def is_chance(perplexity: float | None, vocabulary: int | None) -> bool:
    """Return True if a perplexity is about as good as guessing.

    Guessing any entry of a dictionary of V entries has a perplexity of V. A perplexity of at least
    V^0.9 counts as chance. Without a perplexity or vocabulary, the result is False.
    """
    if perplexity is None or vocabulary is None:
        return False
    return math.log(perplexity) >= CHANCE_FRACTION * math.log(vocabulary)


def measurements_of(*results_files: dict) -> list[Measurement]:
    """Return the measurements of evaluations and probes, in order."""
    measurements = []
    for results in results_files:
        provenance = results["provenance"]
        shared = {
            "corpus": results["corpus"],
            "seed": provenance["seed"],
            "precision": provenance["precision"],
            "data_sha256": provenance["data_sha256"],
        }
        for record in results["cells"]:
            measurements.append(_measurement_of(record, shared))
    return measurements


def _measurement_of(record: dict, shared: dict) -> Measurement:
    """Return the measurement of a result record.

    Args:
        record: result record.
        shared: values of the results file. Values of the record take precedence.
    """
    names = {field.name for field in fields(Measurement)}
    values = dict(shared)
    for key, value in record.items():
        if key in names:
            values[key] = value
    if "text_sha256" in record:
        values["data_sha256"] = record["text_sha256"]
    # Records of probes have neither a split nor a stride.
    values.setdefault("subset", "")
    values.setdefault("stride", record["length"])
    if "bytes" in record and "tokens" in record and "bits_per_byte" not in record:
        values["bits_per_byte"] = record["loss_bits"] * record["tokens"] / record["bytes"]
    has_range = "score_from" in record or "score_to" in record
    if "longest_window" not in record and "tokens" in record and not has_range:
        # Earlier versions did not record it. Without a scored range, all tokens were scored.
        values["longest_window"] = min(record["length"], record["tokens"])
    return Measurement(**values)
