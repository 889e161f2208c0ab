"""How many words and bytes of text a split's tokens stand for.

A line end is a symbol that the model has to predict, so it counts as one word and one byte (the line
feed). Otherwise line ends would count against some tokenisations and not against others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

#: Prefix of the first piece of every word in a sentencepiece vocabulary.
WORD_MARK = "\N{LOWER ONE EIGHTH BLOCK}"
#: Prefix of all pieces of a word but the first in a WordPiece vocabulary.
CONTINUATION = "##"
#: Minimum share of marked tokens for a text to be recognised as one of these.
SHARE = 0.01


@dataclass(frozen=True)
class TextSize:
    """Words and bytes including line ends; None where unknown."""

    words: int | None = None
    bytes: int | None = None


def measure_text(tokens: np.ndarray, line_starts: np.ndarray, dictionary) -> TextSize:
    """Count words and bytes from the pieces, where the vocabulary's markers allow it.

    Args:
        tokens: (N,) indices of the pieces, including one end-of-sentence symbol per line.
        line_starts: (lines,) positions where a line begins.
        dictionary: a ``fairseq.data.Dictionary``.

    Returns:
        Words for sentencepiece and WordPiece, bytes for sentencepiece; neither if any token is
        unknown, since its text is lost.
    """
    symbols = dictionary.symbols
    counts = np.bincount(tokens, minlength=len(symbols))
    if counts[dictionary.unk()]:
        return TextSize()
    lines = int(counts[dictionary.eos()])
    special = np.arange(len(symbols)) < dictionary.nspecial
    marked = np.array([symbol.startswith(WORD_MARK) for symbol in symbols])
    continued = np.array([symbol.startswith(CONTINUATION) for symbol in symbols])
    if counts[marked].sum() >= SHARE * len(tokens):
        first = tokens[line_starts]
        # Without a dummy prefix the first word of a line is unmarked.
        unmarked = int(np.sum(~marked[first] & ~special[first]))
        prefixes = int(np.sum(marked[first]))
        sizes = np.array([_text_bytes(symbol) for symbol in symbols]) * ~special
        return TextSize(
            words=int(counts[marked].sum()) + unmarked + lines,
            bytes=int(counts @ sizes) - prefixes + lines,
        )
    if counts[continued].sum() >= SHARE * len(tokens):
        return TextSize(words=int(counts[~continued & ~special].sum()) + lines)
    return TextSize()


def _text_bytes(piece: str) -> int:
    """UTF-8 bytes of a sentencepiece; ``<0x0A>`` is one byte."""
    if len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
        return 1
    return len(piece.replace(WORD_MARK, " ").encode())
