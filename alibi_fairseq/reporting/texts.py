"""Texts of results: which results can share a table, and how the tables are named."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

from ..results.case import Case
from ..results.result import Result
from ..results.values import TextValues


class Text(NamedTuple):
    """Predicted tokens, with their size where the same case may have different ones.

    Attributes:
        case: the case without windows; without token IDs where tokenizers may differ
            (:func:`identify_raw_text`).
        tokens: number of scored tokens; None if unknown, or where tokenizers may differ.
        bytes: size of the scored text where tokenizers may differ.
    """

    case: Case
    tokens: int | None = None
    bytes: int | None = None


#: Splits in words; others have their names.
SPLITS = {"valid": "validation split", "test": "test split", "train": "training split"}


class TextGroup(NamedTuple):
    """What comparable results have in common.

    Attributes:
        split: name of the split.
        stride: stride of sliding windows; None for windows of any length that do not overlap.
        text: name of the text among those of the split; empty for the only one.
    """

    split: str
    stride: int | None
    text: str

    @property
    def name(self) -> str:
        """Name in captions of tables, such as ``valid, non-overlapping``."""
        windows = "non-overlapping" if self.stride is None else f"S={self.stride}"
        return ", ".join(part for part in (self.split, windows, self.text) if part)

    @property
    def text_in_words(self) -> list[str]:
        """Split and text in the words of figures."""
        parts = [SPLITS.get(self.split, self.split), self.text]
        return [part for part in parts if part]

    @property
    def windows_in_words(self) -> str:
        """Windows in the words of figures."""
        if self.stride is None:
            return "non-overlapping windows"
        return f"sliding windows with S = {self.stride:,}"


def identify_text(result: Result) -> Text:
    """Return the text of a result. Only perplexities of the same tokens are comparable."""
    assert isinstance(result.values, TextValues)
    return Text(result.case.without_windows, tokens=result.values.tokens)


def identify_raw_text(result: Result) -> Text:
    """Return the raw text of a result, whatever its tokenizer.

    Bits per byte of the same text are comparable between tokenizers. A tokenizer gives other tokens
    to a whole text than to its documents, so these are different texts.
    """
    assert isinstance(result.values, TextValues)
    case = replace(result.case.without_windows, tokens=None)
    return Text(case, bytes=result.values.bytes)


def group_by_text(results: Iterable[Result]) -> dict[TextGroup, list[Result]]:
    """Group the results that are comparable, validation and non-overlapping windows first."""
    return _group(results, identify_text)


def group_by_raw_text(results: Iterable[Result]) -> dict[TextGroup, list[Result]]:
    """Group the results on raw text whose bits per byte are comparable, of any tokenizer."""
    known = []
    for result in results:
        assert isinstance(result.values, TextValues)
        if result.case.is_raw_text and result.values.bits_per_byte is not None:
            known.append(result)
    return _group(known, identify_raw_text)


def _group(
    results: Iterable[Result], text_of_result: Callable[[Result], Text]
) -> dict[TextGroup, list[Result]]:
    """Group results by split, kind of windows, and text."""
    ordered = sorted(results, key=_order)
    names = text_names(text_of_result(result) for result in ordered)
    groups: dict[TextGroup, list[Result]] = defaultdict(list)
    for result in ordered:
        stride = None if result.case.nonoverlapping else result.case.stride
        group = TextGroup(result.case.split, stride, names[text_of_result(result)])
        groups[group].append(result)
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
        by_split[text.case.split].append(text)
    names = {}
    for same_split in by_split.values():
        counts = {text.tokens for text in same_split}
        tokenizations = {(text.tokens, text.case.tokens) for text in same_split}
        sizes = {text.bytes for text in same_split}
        hashes = {text.case.text for text in same_split}
        ranges = {text.case.scored for text in same_split}
        rules = {(text.case.scored, text.case.separator) for text in same_split}
        boundaries = {
            (text.case.scored, text.case.separator, text.case.documents) for text in same_split
        }
        for text in same_split:
            case = text.case
            parts = []
            if len(counts) > 1:
                parts.append(f"{text.tokens or 'unknown'} tokens")
            if len(tokenizations) > len(counts):  # texts of equally many tokens
                parts.append(f"token IDs {(case.tokens or 'unknown')[:8]}")
            if len(sizes) > 1:
                parts.append(f"{text.bytes or 'unknown'} bytes")
            if len(hashes) > 1:
                parts.append(f"data {(case.text or 'unknown')[:8]}")
            if len(ranges) > 1 or case.has_range:
                parts.append(case.scored)
            if len(rules) > len(ranges) and case.documents:
                parts.append(f"documents by {case.separator or 'an unknown rule'}")
            if len(boundaries) > len(rules) and case.documents:  # one rule, other documents
                parts.append(f"documents {case.documents[:8]}")
            names[text] = ", ".join(parts)
    return names
