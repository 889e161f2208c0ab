"""Words and bytes of the text that tokens stand for.

A newline counts as one word and one byte, because the model has to predict it. Otherwise newlines
would count against some tokenizations only.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..data.tokenization import SentencePiece

#: Prefix of the first piece of every word in a sentencepiece vocabulary.
WORD_MARK = "\N{LOWER ONE EIGHTH BLOCK}"
#: Smallest fraction of marked pieces by which a vocabulary is recognized.
MIN_MARKED = 0.01
#: sentencepiece's pieces for the bytes of rare characters.
_BYTE_PIECES = {f"<0x{byte:02X}>" for byte in range(256)}


class TextSize(NamedTuple):
    """Words and bytes that tokens stand for, including newlines; None where unknown."""

    words: int | None = None
    bytes: int | None = None


def measure_text_size(
    tokens: np.ndarray,
    item_starts: np.ndarray,
    dictionary: Any,
    kind: str | None = None,
    scored: np.ndarray | None = None,
) -> TextSize:
    """Count words and bytes from the pieces, if they are sentencepiece's.

    WordPiece's pieces show no words, because BERT also separates punctuation: "don't" has three
    unmarked pieces.

    Args:
        tokens: (N,) token IDs of the pieces, including one end-of-sentence symbol per line.
        item_starts: (items,) positions where a stored item starts, which has whole lines.
        dictionary: dictionary of the pieces.
        kind: kind of the tokenizer in the manifest. None: the dictionary determines it.
        scored: increasing positions of the tokens to count. None: all.

    Returns:
        Words and bytes. Neither is known for another tokenizer, or if a token is ``<unk>``, because
        its text is lost.
    """
    if kind is None and _are_sentencepieces(dictionary.symbols[dictionary.nspecial :]):
        kind = SentencePiece.kind
    if kind != SentencePiece.kind:
        return TextSize()
    first_pieces = _first_pieces(tokens, item_starts, dictionary.eos(), scored)
    if scored is not None:
        tokens = tokens[scored]
    counts = np.bincount(tokens, minlength=len(dictionary))
    if counts[dictionary.unk()]:
        return TextSize()
    return _size_of_sentencepieces(counts, first_pieces, dictionary)


def _are_sentencepieces(pieces: list[str]) -> bool:
    """Return True if a dictionary has the pieces of sentencepiece.

    The whole dictionary counts, because a text with few spaces has few marked tokens.
    """
    marked_count = sum(piece.startswith(WORD_MARK) for piece in pieces)
    # Without spaces, a vocabulary has few marked pieces, but usually all bytes.
    is_marked = marked_count >= MIN_MARKED * len(pieces) or _BYTE_PIECES.issubset(pieces)
    return marked_count > 0 and is_marked


def _first_pieces(
    tokens: np.ndarray, item_starts: np.ndarray, eos: int, scored: np.ndarray | None
) -> np.ndarray:
    """Return the scored tokens that begin a line, see :func:`measure_text_size`.

    A line starts with an item, because data can lack end-of-sentence symbols, and after each of
    these symbols, because an item can have several lines.
    """
    starts_line = np.zeros(len(tokens), dtype=bool)
    starts_line[1:] = tokens[:-1] == eos
    starts_line[item_starts] = True
    if scored is not None:
        return tokens[scored][starts_line[scored]]
    return tokens[starts_line]


def _size_of_sentencepieces(
    counts: np.ndarray, first_pieces: np.ndarray, dictionary: Any
) -> TextSize:
    """Count words and bytes of sentencepiece's pieces.

    Args:
        counts: (entries,) number of tokens of each dictionary entry.
        first_pieces: (lines,) token IDs that begin a line.
        dictionary: dictionary of the pieces.
    """
    symbols = dictionary.symbols
    num_lines = int(counts[dictionary.eos()])
    special = np.arange(len(symbols)) < dictionary.nspecial
    marked = np.array([symbol.startswith(WORD_MARK) for symbol in symbols])
    # sentencepiece can put a space before each line (its dummy prefix). This space is not
    # in the text. Without it, the first piece of a line starts a word but has no mark.
    added_spaces = int(np.sum(marked[first_pieces]))
    unmarked_words = int(np.sum(~marked[first_pieces] & ~special[first_pieces]))
    sizes = np.array([_text_bytes(symbol) for symbol in symbols]) * ~special
    marked_words = int(counts[marked].sum())
    size = int(counts @ sizes)
    return TextSize(
        words=marked_words + unmarked_words + num_lines,
        bytes=size - added_spaces + num_lines,
    )


def _text_bytes(piece: str) -> int:
    """Return the number of UTF-8 bytes of a sentencepiece; ``<0x0A>`` is one byte."""
    if piece in _BYTE_PIECES:
        return 1
    return len(piece.replace(WORD_MARK, " ").encode())
