"""Case: which tokens are predicted in which windows. It identifies a column of a table."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from .json_types import STORED, Fraction, NonEmptyStr, NonNegativeInt, PositiveCount, Sha256


@dataclass(frozen=True)
class Case:
    """Tokens that are predicted, and the windows that predict them.

    Attributes:
        kind: ``text``, ``probe``, or ``validation`` (during training).
        text: SHA-256 of the split, of raw text, or of a probe's training data; None if unknown:
            such results are never averaged over seeds.
        split: name of the split, or of the text file without its suffix; empty for a probe.
        length: evaluation length, in tokens per window.
        stride: tokens scored per window.
        documents: where documents start, if each is scored in part or tokenized on its own: the
            SHA-256 of the start positions, or the name of the rule that finds them in the text.
        score_from, score_to: scored range of the text, or of each document; None: to the end.
        tokens: SHA-256 of the token IDs of raw text.
        depth: depth of the repeated block of a probe.
        corpus: name of the text, which isn't compared.
        separator: what separates the documents, which isn't compared.
    """

    __pydantic_config__ = STORED

    kind: Literal["text", "probe", "validation"]
    text: Sha256 | None
    split: str
    length: PositiveCount
    stride: PositiveCount
    documents: NonEmptyStr | None = None
    score_from: NonNegativeInt = 0
    score_to: NonNegativeInt | None = None
    tokens: Sha256 | None = None
    depth: Fraction | None = None
    corpus: str = field(default="", compare=False)
    separator: str = field(default="", compare=False)

    @property
    def nonoverlapping(self) -> bool:
        """True if every window scores all of its tokens."""
        return self.stride == self.length

    @property
    def has_range(self) -> bool:
        """True if only a range of the tokens is scored."""
        return self.score_from > 0 or self.score_to is not None

    @property
    def scored(self) -> str:
        """Which tokens are scored, in words."""
        if not self.has_range:
            return "all scored, tokenized by document" if self.documents else "all scored"
        end = "the end" if self.score_to is None else f"{self.score_to:,}"
        scored = f"tokens {self.score_from:,} to {end}"
        return f"{scored} of each document" if self.documents else scored

    @property
    def without_windows(self) -> Case:
        """The same tokens in whatever windows: a key of texts, whose length and stride are 0."""
        return replace(self, length=0, stride=0)

    @property
    def is_raw_text(self) -> bool:
        """True if the text was tokenized for the evaluation."""
        return self.tokens is not None
