"""Split of a binarized corpus, read through fairseq's data API."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from fairseq.data import Dictionary, data_utils

from ..errors import UserInputError
from ..results.data_folder import DataFolder
from .scoring import SplitTensors
from .text_size import TextSize, measure_text_size
from .windows import Span


@dataclass(frozen=True)
class Split:
    """One split, its lines in one row.

    Attributes:
        name: ``valid``, ``test``, …
        tokens: (N,) int64, every token of every line, end-of-sentence symbols included.
        item_starts: (lines,) positions in ``tokens`` where a stored item starts, which fairseq
            calls a line.
        dictionary: dictionary of the token IDs.
        text_size: words and bytes of the original text, where known.
        tokenizer_kind: kind of the tokenizer, from the manifest; None without one.
    """

    name: str
    tokens: np.ndarray
    item_starts: np.ndarray
    dictionary: Dictionary
    text_size: TextSize
    tokenizer_kind: str | None = None

    def tensors(self, stride: int, device: torch.device) -> SplitTensors:
        """Return the split for windows that score ``stride`` tokens each.

        The input at a position is the previous token, or the end-of-sentence symbol at the start of
        the split. fairseq also uses that symbol where the tokens that a window scores begin with
        a line. There, the previous token is the end-of-sentence symbol anyway, unless the data was
        binarized without it.

        Args:
            stride: tokens scored per window.
            device: device of the tensors.
        """
        eos = self.dictionary.eos()
        inputs = np.concatenate([[eos], self.tokens[:-1]])
        starts_window = self.item_starts % stride == 0
        inputs[self.item_starts[starts_window]] = eos
        return SplitTensors(
            torch.from_numpy(inputs).to(device),
            torch.from_numpy(self.tokens).to(device),
            self.name,
        )

    def scored_text_size(self, spans: Sequence[Span]) -> TextSize:
        """Return words and bytes of the scored tokens, as far as the pieces show them."""
        scored = np.concatenate([np.arange(first, stop) for _, first, stop in spans])
        if len(scored) == len(self.tokens):
            return self.text_size
        return measure_text_size(
            self.tokens, self.item_starts, self.dictionary, self.tokenizer_kind, scored
        )


def load_dictionary(data: Path) -> Dictionary:
    """Load the dictionary of a folder written by ``fairseq-preprocess``."""
    return Dictionary.load(str(data / "dict.txt"))


def load_split(folder: DataFolder, name: str, dictionary: Dictionary) -> Split:
    """Read a split into memory.

    Args:
        folder: the data folder.
        name: name of the split.
        dictionary: its dictionary.

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
    arrays = [np.asarray(lines[index], dtype=np.int64) for index in range(len(lines))]
    tokens = np.concatenate(arrays)
    if tokens.min() < 0 or tokens.max() >= len(dictionary):
        raise UserInputError(
            f"The split '{name}' in '{folder.path}' has a token ID beyond the {len(dictionary)} "
            "entries of its dictionary. Prepare the data again."
        )
    sizes = np.array([len(array) for array in arrays], dtype=np.int64)
    item_starts = np.cumsum(sizes) - sizes
    item_starts = item_starts[sizes > 0]
    kind = folder.tokenizer.get("kind")
    text_size = _text_size_in_manifest(folder, name, len(tokens))
    if text_size is None:
        text_size = measure_text_size(tokens, item_starts, dictionary, kind)
    return Split(name, tokens, item_starts, dictionary, text_size, kind)


def _load_lines(data: Path, name: str, dictionary: Dictionary):
    """Return the indexed lines of a split, or None if it is missing or empty."""
    binary = data / f"{name}.bin"
    if binary.is_file() and binary.stat().st_size == 0:
        return None
    return data_utils.load_indexed_dataset(str(data / name), dictionary)


def _text_size_in_manifest(folder: DataFolder, name: str, num_tokens: int) -> TextSize | None:
    """Return the size of a split's text from the manifest, or None if the manifest has none.

    The manifest above the shards of a corpus has the size of their whole training text, so it has
    none of a single shard.

    A split with unknown tokens has neither words nor bytes, as in :func:`measure_text_size`. The
    counts of WikiText-103 have no ``unknown``, since all of its words, and ``<unk>`` itself, are in
    its dictionary. For another text in its layout, ``unknown`` counts the words that are not in it.

    Args:
        folder: the data folder.
        name: name of the split.
        num_tokens: tokens of the split in this folder.
    """
    if folder.manifest is None or name not in folder.manifest["splits"]:
        return None
    counts = folder.manifest["splits"][name]
    if counts["tokens"] != num_tokens:
        return None
    if counts.get("unknown"):
        return TextSize()
    return TextSize(words=counts["words"] + counts["lines"], bytes=counts["bytes"])
