"""A split of a binarised corpus as one stream of tokens, read through fairseq's data API.

In the size of its text a line end, which the model has to predict, counts as one word and one byte (the
line feed). Otherwise line ends would count against some tokenisations and not against others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from fairseq.data import Dictionary, data_utils

from ..errors import UserInputError
from ..files import sha256_file
from ..results import manifest
from ..results.schema import read_json
from .scoring import SplitTensors
from .windows import Span

#: File in a data folder with the first positions of each split's documents.
DOCUMENTS_FILE = "documents.json"
#: How documents are told apart.
DOCUMENTS = {
    "empty-lines": "an empty line ends a document, as `prepare text` and `cc100-roberta` write them",
    "titles": "a line of the form ' = Title = ' begins a document, as in WikiText",
}
#: Prefix of the first piece of every word in a sentencepiece vocabulary.
WORD_MARK = "\N{LOWER ONE EIGHTH BLOCK}"
#: Prefix of all pieces of a word but the first in a WordPiece vocabulary.
CONTINUATION = "##"
#: Minimum share of marked tokens for a text to be recognised as one of these.
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

    def stream(self, stride: int, device: torch.device) -> SplitTensors:
        """The split for windows that score ``stride`` tokens each.

        The input at a position is the previous token, or the end-of-sentence symbol at the start of
        the stream. fairseq also uses that symbol where a scored span begins a line; the previous
        token is then the end-of-sentence symbol anyway, unless the data was binarised without it.
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
    """The dictionary of a folder written by ``fairseq-preprocess``."""
    return Dictionary.load(str(data / "dict.txt"))


def load_split(data: Path, name: str, dictionary: Dictionary) -> Split:
    """Read a split into memory.

    Raises:
        UserInputError: the split does not exist or is empty, or its manifest disagrees.
    """
    described = manifest.load(data)
    if described is not None:
        check_hashes(described, data, name)
    lines, binary = None, data / f"{name}.bin"
    if not binary.is_file() or binary.stat().st_size:
        lines = data_utils.load_indexed_dataset(str(data / name), dictionary)
    if lines is None:
        found = ", ".join(sorted(path.stem for path in data.glob("*.idx"))) or "none"
        raise UserInputError(
            f"The split '{name}' of '{data}' is empty or missing (it has: {found}); change --subset."
        )
    sizes = np.array([len(lines[i]) for i in range(len(lines))], dtype=np.int64)
    tokens = np.concatenate([np.asarray(lines[i], dtype=np.int64) for i in range(len(lines))])
    if tokens.min() < 0 or tokens.max() >= len(dictionary):
        raise UserInputError(
            f"The split '{name}' in '{data}' has a word number beyond the {len(dictionary)} "
            "entries of its dictionary; prepare the data again."
        )
    line_starts = (np.cumsum(sizes) - sizes)[sizes > 0]
    counts = described["splits"].get(name) if described is not None else None
    if counts is None:
        text = measure_text(tokens, line_starts, dictionary)
    elif counts["tokens"] == len(tokens):
        text = TextSize(words=counts["words"] + counts["lines"], bytes=counts["bytes"])
    else:
        raise UserInputError(
            f"The split '{name}' in '{data}' has {len(tokens)} tokens but its manifest says "
            f"{counts['tokens']}; prepare the data again."
        )
    return Split(name, tokens, line_starts, dictionary, text)


def check_hashes(described: dict, data: Path, name: str) -> None:
    """Raises UserInputError unless a split and the dictionary are the files that the manifest describes."""
    folder = data if (data / manifest.FILE_NAME).is_file() else data.parent
    for path in (data / f"{name}.bin", data / f"{name}.idx", data / "dict.txt"):
        expected = described.get("files", {}).get(path.relative_to(folder).as_posix())
        if expected is None or not path.is_file():
            continue
        if path.stat().st_size != expected["bytes"] or sha256_file(path) != expected["sha256"]:
            raise UserInputError(
                f"'{path}' is not the file that {folder / manifest.FILE_NAME} describes (its "
                "contents differ); prepare the data again, or remove the manifest if the change "
                "was meant."
            )


def corpus_name(data: Path) -> str:
    """The corpus name for results: from the manifest, or else from the folder."""
    described = manifest.load(data)
    if described is not None:
        return described["corpus"]
    folder = data.resolve()
    return (folder.parent if folder.name in ("data-bin", "data_bin") else folder).name


def document_starts(data: Path, split: Split, kind: str) -> list[int]:
    """The positions where a document begins, the first one 0.

    Args:
        data: its ``documents.json``, if there is one for the split, gives them.
        kind: otherwise, a key of ``DOCUMENTS``.

    Raises:
        UserInputError: there are not even two documents, or ``documents.json`` is invalid.
    """
    listed = read_document_starts(data / DOCUMENTS_FILE, split)
    if listed is not None:
        return listed
    tokens, dictionary = split.tokens, split.dictionary
    if kind == "titles":
        # " = Title = " has one mark on either side, " = = Section = = " two.
        ends = np.append(split.line_starts[1:], len(tokens))
        lines = split.line_starts[ends - split.line_starts >= 4]
        last = ends[ends - split.line_starts >= 4] - 2  # before the end-of-sentence symbol
        marked = tokens == (dictionary.index("=") if "=" in dictionary else -1)
        starts = lines[marked[lines] & marked[last] & ~marked[lines + 1]]
    else:
        ended = np.concatenate([[True, True], tokens == dictionary.eos()])
        starts = np.flatnonzero(ended[1:-1] & ended[:-2] & ~ended[2:])
    starts = np.union1d([0], starts)
    if len(starts) < 2:
        raise UserInputError(
            f"--per-document {kind} finds one document in the {len(tokens)} tokens of "
            f"'{split.name}' in '{data}'; leave it out, or tell them apart in another way."
        )
    return starts.tolist()


def read_document_starts(path: Path, split: Split) -> list[int] | None:
    """Read the first positions of a split's documents from ``documents.json``.

    Returns:
        Increasing positions from 0, or None if there is no file or it does not name the split.

    Raises:
        UserInputError: the file is invalid.
    """
    if not path.is_file():
        return None
    starts_by_split = read_json(path)
    if not isinstance(starts_by_split, dict):
        raise UserInputError(
            f"'{path}' must be an object with a list of positions for each split, such as "
            '{"test": [0, 2051]}. Correct or remove it.'
        )
    if split.name not in starts_by_split:
        return None
    starts = starts_by_split[split.name]
    # Not isinstance, because True and False are instances of int.
    is_valid = (
        isinstance(starts, list)
        and len(starts) >= 2
        and all(type(start) is int for start in starts)
        and all(start < following for start, following in pairwise(starts))
        and starts[0] == 0
        and starts[-1] < len(split.tokens)
    )
    if not is_valid:
        raise UserInputError(
            f"'{split.name}' in '{path}' must list where at least two documents begin: increasing "
            f"integers from 0 to at most {len(split.tokens) - 1}, the last token of the split. "
            "Correct or remove it."
        )
    return starts


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
