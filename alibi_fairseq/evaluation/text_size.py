"""Words and bytes of the text that tokens stand for.

A newline counts as one word and one byte, because the model has to predict it. Otherwise newlines
would count against some tokenizations only.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..data.tokenization import UNKNOWN_PIECE

#: Prefix of the first piece of every word in a sentencepiece vocabulary.
WORD_MARK = "\N{LOWER ONE EIGHTH BLOCK}"
#: Prefix of all pieces of a word but the first in a WordPiece vocabulary.
CONTINUATION = "##"
#: Smallest fraction of marked tokens by which a vocabulary is recognized.
MIN_MARKED = 0.01


class TextSize(NamedTuple):
    """Words and bytes that tokens stand for, including newlines; None where unknown."""

    words: int | None = None
    bytes: int | None = None


def measure_text_size(tokens: np.ndarray, line_starts: np.ndarray, dictionary) -> TextSize:
    """Count words and bytes from the pieces, if the vocabulary's marks allow it.

    Args:
        tokens: (N,) token IDs of the pieces, including one end-of-sentence symbol per line.
        line_starts: (lines,) positions where a line begins.
        dictionary: dictionary of the pieces.

    Returns:
        Words for sentencepiece and WordPiece, and bytes for sentencepiece. Neither is known if a
        token is ``<unk>`` or WordPiece's ``[UNK]``, because its text is lost.
    """
    symbols = dictionary.symbols
    counts = np.bincount(tokens, minlength=len(symbols))
    if counts[dictionary.unk()]:
        return TextSize()
    lines = int(counts[dictionary.eos()])
    special = np.arange(len(symbols)) < dictionary.nspecial
    marked = np.array([symbol.startswith(WORD_MARK) for symbol in symbols])
    continued = np.array([symbol.startswith(CONTINUATION) for symbol in symbols])
    marked_count = int(counts[marked].sum())
    if marked_count >= MIN_MARKED * len(tokens):
        first_pieces = tokens[line_starts]
        # sentencepiece can put a space in front of each line (its dummy prefix). This space is not
        # in the text. Without it, the first piece of a line begins a word but has no mark.
        added_spaces = int(np.sum(marked[first_pieces]))
        unmarked_words = int(np.sum(~marked[first_pieces] & ~special[first_pieces]))
        sizes = np.array([_text_bytes(symbol) for symbol in symbols]) * ~special
        piece_bytes = int(counts @ sizes)
        return TextSize(
            words=marked_count + unmarked_words + lines,
            bytes=piece_bytes - added_spaces + lines,
        )
    if counts[continued].sum() >= MIN_MARKED * len(tokens):
        if counts[dictionary.index(UNKNOWN_PIECE)]:
            return TextSize()
        beginnings = int(counts[~continued & ~special].sum())
        return TextSize(words=beginnings + lines)
    return TextSize()


def _text_bytes(piece: str) -> int:
    """Return the number of UTF-8 bytes of a sentencepiece; ``<0x0A>`` is one byte."""
    if len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
        return 1
    return len(piece.replace(WORD_MARK, " ").encode())
