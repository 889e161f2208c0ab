"""Texts of results: which results can share a table, and how the tables are named."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import NamedTuple

from ..results.result import Result, TextValues


class Text(NamedTuple):
    """Predicted tokens. None means unknown, or no limit of the scored range.

    Attributes:
        split: name of the split; empty for a raw text.
        sha256: hash of the split or of the raw text.
        documents: boundaries of the documents, if they count.
        separator: what separates these documents.
        tokens: number of scored tokens.
        tokens_sha256: hash of the token IDs of a raw text.
        bytes: size of a raw text, in place of ``tokens`` and ``tokens_sha256`` where tokenizers may
            differ (:func:`identify_raw_text`).
    """

    split: str
    sha256: str | None
    documents: str | None
    separator: str
    score_from: int
    score_to: int | None
    tokens: int | None = None
    tokens_sha256: str | None = None
    bytes: int | None = None

    @property
    def has_range(self) -> bool:
        """True if only a range of the tokens is scored."""
        return self.score_from > 0 or self.score_to is not None

    @property
    def scored(self) -> str:
        """The scored range in words."""
        if not self.has_range:
            if self.separator:
                return f"all scored, tokenized by document ({self.separator})"
            return "all scored"
        end = "the end" if self.score_to is None else f"{self.score_to:,}"
        scored = f"tokens {self.score_from:,} to {end}"
        if self.separator:
            scored += f" of each document ({self.separator})"
        return scored


def identify_text(result: Result) -> Text:
    """Return the text of a result. Only perplexities of the same tokens are comparable."""
    case = result.case
    assert isinstance(result.values, TextValues)
    return Text(
        split=case.split,
        sha256=case.text,
        documents=case.documents,
        separator=case.separator if case.documents else "",
        score_from=case.score_from,
        score_to=case.score_to,
        tokens=result.values.tokens,
        tokens_sha256=case.tokens,
    )


def identify_raw_text(result: Result) -> Text:
    """Return the raw text of a result, whatever its tokenizer.

    Bits per byte of the same text are comparable between tokenizers. A tokenizer gives other tokens
    to a whole text than to its documents, so these are different texts.
    """
    assert isinstance(result.values, TextValues)
    return identify_text(result)._replace(
        tokens=None, tokens_sha256=None, bytes=result.values.bytes
    )


def group_by_text(results: Iterable[Result]) -> dict[str, list[Result]]:
    """Group the results that are comparable, validation and non-overlapping windows first.

    A group has one split, one text, and either one stride or non-overlapping windows of any length.
    Its name, such as ``valid, non-overlapping``, includes the text only if there are several.
    """
    return _group(results, identify_text)


def group_by_raw_text(results: Iterable[Result]) -> dict[str, list[Result]]:
    """Group the results on raw text whose bits per byte are comparable, of any tokenizer."""
    known = []
    for result in results:
        assert isinstance(result.values, TextValues)
        if result.case.is_raw_text and result.values.bits_per_byte is not None:
            known.append(result)
    return _group(known, identify_raw_text)


def _group(
    results: Iterable[Result], text_of_result: Callable[[Result], Text]
) -> dict[str, list[Result]]:
    """Group results by split, kind of windows, and text."""
    ordered = sorted(results, key=_order)
    names = text_names(text_of_result(result) for result in ordered)
    groups: dict[str, list[Result]] = defaultdict(list)
    for result in ordered:
        windows = "non-overlapping" if result.case.nonoverlapping else f"S={result.case.stride}"
        parts = [result.case.split, windows, names[text_of_result(result)]]
        groups[", ".join(part for part in parts if part)].append(result)
    return groups


def _order(result: Result) -> tuple[bool, str, bool, int]:
    """Return the sort key of the split and the stride of a result."""
    case = result.case
    stride = 0 if case.nonoverlapping else case.stride
    return (case.split != "valid", case.split, not case.nonoverlapping, stride)


def text_names(texts: Iterable[Text]) -> dict[Text, str]:
    """Name each text by its differences from other texts of the same split.

    The name of the only text of a split is empty, unless only a range of it is scored.
    """
    by_split: dict[str, list[Text]] = defaultdict(list)
    for text in dict.fromkeys(texts):
        by_split[text.split].append(text)
    names = {}
    for same_split in by_split.values():
        counts = {text.tokens for text in same_split}
        tokenizations = {(text.tokens, text.tokens_sha256) for text in same_split}
        sizes = {text.bytes for text in same_split}
        hashes = {text.sha256 for text in same_split}
        ranges = {text.scored for text in same_split}
        boundaries = {(text.scored, text.documents) for text in same_split}
        for text in same_split:
            parts = []
            if len(counts) > 1:
                parts.append(f"{text.tokens or 'unknown'} tokens")
            if len(tokenizations) > len(counts):  # texts of equally many tokens
                parts.append(f"token IDs {(text.tokens_sha256 or 'unknown')[:8]}")
            if len(sizes) > 1:
                parts.append(f"{text.bytes or 'unknown'} bytes")
            if len(hashes) > 1:
                parts.append(f"data {(text.sha256 or 'unknown')[:8]}")
            if len(ranges) > 1 or text.has_range:
                parts.append(text.scored)
            if len(boundaries) > len(ranges):
                parts.append(f"documents {(text.documents or 'unknown')[:8]}")
            names[text] = ", ".join(parts)
    return names


def names_across_splits(texts: Iterable[Text]) -> dict[Text, str]:
    """Name texts like :func:`text_names`, but give all splits of one evaluation the same name.

    Splits that were evaluated together have the same known hash in results of version 3.
    """
    names = text_names(texts)
    ranges = {text.scored for text in names}
    by_evaluation: dict[tuple[str | None, str], list[Text]] = defaultdict(list)
    for text in names:
        by_evaluation[text.sha256, text.scored].append(text)
    for (sha256, scored), members in by_evaluation.items():
        splits = {text.split for text in members}
        has_names = any(names[text] for text in members)
        if sha256 is None or not has_names or len(splits) == 1 or len(splits) < len(members):
            continue
        name = f"data {sha256[:8]}"
        if len(ranges) > 1:
            name += f", {scored}"
        for text in members:
            names[text] = name
    return names
