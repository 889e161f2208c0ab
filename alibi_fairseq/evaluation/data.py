"""A split of a binarized corpus as one stream of tokens, read through fairseq's data API.

In the size of its text a line end, which the model has to predict, counts as one word and one byte
(the line feed). Otherwise line ends would count against some tokenizations and not against others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from fairseq.data import Dictionary, data_utils

from ..errors import UserInputError
from ..results.data_folder import DOCUMENTS_FILE, DataFolder
from .scoring import SplitTensors
from .windows import Span

#: Prefix of the first piece of every word in a sentencepiece vocabulary.
WORD_MARK = "\N{LOWER ONE EIGHTH BLOCK}"
#: Prefix of all pieces of a word but the first in a WordPiece vocabulary.
CONTINUATION = "##"
#: Minimum share of marked tokens for a text to be recognized as one of these.
SHARE = 0.01


class TextSize(NamedTuple):
    """Words and bytes that tokens stand for, including line ends; None where unknown."""

    words: int | None = None
    bytes: int | None = None


@dataclass(frozen=True)
class Split:
    """One split as a stream of tokens.

    Attributes:
        name: ``valid``, ``test``, …
        tokens: (N,) int64, every token of every line, end-of-sentence symbols included.
        line_starts: (lines,) positions in ``tokens`` where a line begins.
        dictionary: numbers its words, and has the end-of-sentence symbol.
        text: words and bytes of the original text, where known.
    """

    name: str
    tokens: np.ndarray
    line_starts: np.ndarray
    dictionary: Dictionary
    text: TextSize

    def tensors(self, stride: int, device: torch.device) -> SplitTensors:
        """Return the split for windows that score ``stride`` tokens each.

        The input at a position is the previous token, or the end-of-sentence symbol at the start of
        the stream. fairseq also uses that symbol where a scored span begins a line; the previous
        token is then the end-of-sentence symbol anyway, unless the data was binarized without it.
        """
        eos = self.dictionary.eos()
        inputs = np.concatenate([[eos], self.tokens[:-1]])
        inputs[self.line_starts[self.line_starts % stride == 0]] = eos
        ready, targets = (torch.from_numpy(array).to(device) for array in (inputs, self.tokens))
        return SplitTensors(ready, targets, self.name)

    def text_of(self, spans: Sequence[Span]) -> TextSize:
        """Words and bytes of the scored tokens, as far as the pieces tell."""
        scored = np.concatenate([np.arange(first, last) for _, first, last in spans])
        if len(scored) == len(self.tokens):
            return self.text
        line_starts = np.flatnonzero(np.isin(scored, self.line_starts))
        return measure_text(self.tokens[scored], line_starts, self.dictionary)


def load_dictionary(data: Path) -> Dictionary:
    """Load the dictionary of a folder written by ``fairseq-preprocess``."""
    return Dictionary.load(str(data / "dict.txt"))


def load_split(folder: DataFolder, name: str, dictionary: Dictionary) -> Split:
    """Read a split into memory.

    Raises:
        UserInputError: the split is missing or empty, or the manifest describes other data.
    """
    folder.check_split(name)
    lines = _load_lines(folder.path, name, dictionary)
    if lines is None:
        names = sorted(path.stem for path in folder.path.glob("*.idx"))
        available = ", ".join(names) or "none"
        raise UserInputError(
            f"The split '{name}' of '{folder.path}' is empty or missing (it has: {available}). "
            "Change --subset."
        )
    sizes = np.array([len(lines[i]) for i in range(len(lines))], dtype=np.int64)
    tokens = np.concatenate([np.asarray(lines[i], dtype=np.int64) for i in range(len(lines))])
    if tokens.min() < 0 or tokens.max() >= len(dictionary):
        raise UserInputError(
            f"The split '{name}' in '{folder.path}' has a token ID beyond the {len(dictionary)} "
            "entries of its dictionary. Prepare the data again."
        )
    line_ends = np.cumsum(sizes)
    line_starts = (line_ends - sizes)[sizes > 0]
    text = _text_in_manifest(folder, name, len(tokens))
    if text is None:
        text = measure_text(tokens, line_starts, dictionary)
    return Split(name, tokens, line_starts, dictionary, text)


def _load_lines(data: Path, name: str, dictionary: Dictionary):
    """Return the indexed lines of a split, or None if it is missing or empty."""
    binary = data / f"{name}.bin"
    if binary.is_file() and binary.stat().st_size == 0:
        return None
    return data_utils.load_indexed_dataset(str(data / name), dictionary)


def _text_in_manifest(folder: DataFolder, name: str, tokens: int) -> TextSize | None:
    """Return the size of a split's text from the manifest, or None if it is unknown.

    Raises:
        UserInputError: the split has another number of tokens than the manifest says.
    """
    if folder.manifest is None or name not in folder.manifest["splits"]:
        return None
    counts = folder.manifest["splits"][name]
    if counts["tokens"] != tokens:
        raise UserInputError(
            f"The split '{name}' in '{folder.path}' has {tokens} tokens but its manifest says "
            f"{counts['tokens']}. Prepare the data again."
        )
    return TextSize(words=counts["words"] + counts["lines"], bytes=counts["bytes"])


def document_starts(folder: DataFolder, split: Split, kind: str) -> list[int]:
    """Return the positions where a document begins, the first one 0.

    Args:
        folder: data folder, whose ``documents.json`` takes precedence if it names the split.
        kind: key of :data:`.config.DOCUMENTS` that applies otherwise.

    Raises:
        UserInputError: the split has fewer than two documents, or ``documents.json`` is invalid.
    """
    listed = folder.document_starts.get(split.name)
    if listed is not None:
        if listed[-1] >= len(split.tokens):
            raise UserInputError(
                f"'{split.name}' in '{folder.path / DOCUMENTS_FILE}' lists a document that begins "
                f"at {listed[-1]}, but the last token of the split is {len(split.tokens) - 1}. "
                "Correct or remove the file."
            )
        return listed
    starts = _title_starts(split) if kind == "titles" else _starts_after_empty_lines(split)
    starts = np.union1d([0], starts)
    if len(starts) < 2:
        raise UserInputError(
            f"--per-document {kind} finds one document in the {len(split.tokens)} tokens of "
            f"'{split.name}' in '{folder.path}'. Omit it, or choose another way to separate "
            "documents."
        )
    return starts.tolist()


def _title_starts(split: Split) -> np.ndarray:
    """Return the positions of lines of the form ' = Title = '.

    Headings of sections, ' = = Section = = ', have two marks on either side.
    """
    tokens, dictionary = split.tokens, split.dictionary
    ends = np.append(split.line_starts[1:], len(tokens))
    long_enough = ends - split.line_starts >= 4  # mark, title, mark, end of sentence
    first = split.line_starts[long_enough]
    last = ends[long_enough] - 2  # before the end-of-sentence symbol
    mark = dictionary.index("=") if "=" in dictionary else -1
    is_mark = tokens == mark
    return first[is_mark[first] & is_mark[last] & ~is_mark[first + 1]]


def _starts_after_empty_lines(split: Split) -> np.ndarray:
    """Return the positions of non-empty lines after an empty one or at the start of the split."""
    is_end = split.tokens == split.dictionary.eos()
    ended = np.concatenate([[True, True], is_end])
    return np.flatnonzero(ended[1:-1] & ended[:-2] & ~ended[2:])


def measure_text(tokens: np.ndarray, line_starts: np.ndarray, dictionary) -> TextSize:
    """Count words and bytes from the pieces, where the vocabulary's markers allow it.

    Args:
        tokens: (N,) indices of the pieces, including one end-of-sentence symbol per line.
        line_starts: (lines,) positions where a line begins.

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
