"""Text file as one stream of tokens of any tokenizer.

A text file takes the place of a split of binarized data. Its size is measured on the raw text:
every newline counts as one word, and as one or more bytes like every other character.

Shapes: N tokens of the file.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from ..data.tokenization import UNKNOWN_PIECE
from ..data.wikitext103 import ARTICLE_START
from ..errors import UserInputError
from ..evaluation.documents import one_document
from ..evaluation.scoring import SplitTensors
from ..evaluation.text_size import TextSize
from ..evaluation.windows import Span
from ..files import open_input
from .model_folder import ModelFolder
from .tokenization_alibi_lm import AlibiLmTokenizer

#: Pattern that matches at the start of a document, by rule. With ``empty-lines``, this is a
#: non-empty line that follows an empty one. Lines may end with CR LF.
BOUNDARY_PATTERNS = {
    "titles": re.compile(ARTICLE_START.pattern.decode(), re.MULTILINE),
    "empty-lines": re.compile(r"(?<=\n)(?<![^\r\n]\n)(?<![^\n]\r\n)(?=[^\n])(?!\r\n)"),
}


@dataclass(frozen=True)
class Documents:
    """Text file in documents.

    Attributes:
        name: file name without its suffix.
        sha256: SHA-256 of the file.
        parts: documents, whose concatenation is the text.
    """

    name: str
    sha256: str
    parts: list[str]


@dataclass(frozen=True)
class TextFile:
    """Text file in tokens, with the interface of :class:`..evaluation.split.Split`.

    Attributes:
        name: file name without its suffix, the split in result records.
        text: the whole text.
        sha256: SHA-256 of the file.
        tokens: (N,) int64, without special tokens.
        offsets: (N + 1,) first character of each token, and the length of the text. None if the
            tokenizer does not report them.
        restarts: positions whose input is ``first_input``: the first of the file, or of each
            document.
        document_starts: first position of each document, the first one 0.
        first_input: token ID from which the first token is predicted.
        has_unknown: True if a token stands for text that is not in the vocabulary.
    """

    name: str
    text: str
    sha256: str
    tokens: np.ndarray
    offsets: np.ndarray | None
    restarts: list[int]
    document_starts: list[int]
    first_input: int
    has_unknown: bool

    @property
    def tokens_sha256(self) -> str:
        """SHA-256 of the token IDs, equal for tokenizers that agree on this text."""
        return hashlib.sha256(self.tokens.astype("<i8").tobytes()).hexdigest()

    def tensors(self, stride: int, device: torch.device) -> SplitTensors:
        """Return the inputs and targets on a device; the inputs do not depend on the stride."""
        inputs = np.concatenate([[self.first_input], self.tokens[:-1]])
        inputs[self.restarts] = self.first_input
        return SplitTensors(
            torch.from_numpy(inputs).to(device), torch.from_numpy(self.tokens).to(device), self.name
        )

    def scored_text_size(self, spans: Sequence[Span]) -> TextSize:
        """Return the words and bytes of the scored tokens, or None for both if they are not known.

        They are not known if the file has an unknown token. It stands for any text, so its loss is
        too low for the words that it replaces.
        """
        if self.has_unknown:
            return TextSize()
        if sum(span.stop - span.first for span in spans) == len(self.tokens):
            return count_words_and_bytes(self.text)
        if self.offsets is None:
            return TextSize()
        words = 0
        size = 0
        for span in spans:
            part = self.text[self.offsets[span.first] : self.offsets[span.stop]]
            part_size = count_words_and_bytes(part)
            words += part_size.words or 0
            size += part_size.bytes or 0
        return TextSize(words, size)


def count_words_and_bytes(text: str) -> TextSize:
    """Return the words and bytes of a text; a newline counts as a word."""
    return TextSize(words=len(text.split()) + text.count("\n"), bytes=len(text.encode()))


def read_documents(path: Path, boundary: str | None = None) -> Documents:
    """Read a text file, and split it into documents.

    Args:
        path: file in UTF-8.
        boundary: key of :data:`BOUNDARY_PATTERNS`, or None for one document.

    Raises:
        UserInputError: the file is not UTF-8, or has only one document.
    """
    with open_input(path) as file:
        content = file.read()
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise UserInputError(
            f"{path} is not a text file in UTF-8 (byte {error.start}). Convert it."
        ) from error
    parts = [text]
    if boundary is not None:
        parts = split_documents(text, boundary)
        if len(parts) < 2:
            raise one_document(boundary, f"'{path}'")
    return Documents(path.stem, hashlib.sha256(content).hexdigest(), parts)


def tokenize_documents(
    documents: Documents, folder: ModelFolder, restart_documents: bool = False
) -> TextFile:
    """Split a text into tokens.

    Each document is tokenized separately, so no token spans two documents.

    Args:
        documents: the text.
        folder: folder of the model.
        restart_documents: True if the first token of each document is predicted like the first
            token of the file.
    """
    tokens, offsets, document_starts = _encode(documents.parts, folder.tokenizer)
    return TextFile(
        name=documents.name,
        text="".join(documents.parts),
        sha256=documents.sha256,
        tokens=tokens,
        offsets=offsets,
        restarts=document_starts if restart_documents else [0],
        document_starts=document_starts,
        first_input=folder.first_input,
        has_unknown=any(unknown in tokens for unknown in _unknown_ids(folder.tokenizer)),
    )


def split_documents(text: str, boundary: str) -> list[str]:
    """Split a text into documents, whose concatenation is the text.

    Args:
        text: the text.
        boundary: key of :data:`BOUNDARY_PATTERNS`.
    """
    starts = [match.start() for match in BOUNDARY_PATTERNS[boundary].finditer(text)]
    edges = sorted({0, *starts, len(text)})
    return [text[begin:end] for begin, end in zip(edges, edges[1:])]


def _unknown_ids(tokenizer: PreTrainedTokenizerBase) -> set[int]:
    """Return the token IDs that stand for text outside the vocabulary.

    A fast tokenizer gives the unknown token of its backend, which its configuration may not name.
    """
    unknown = {tokenizer.unk_token_id}
    if isinstance(tokenizer, AlibiLmTokenizer) and tokenizer.is_wordpiece:
        # The piece of an unknown word is a symbol of the dictionary, next to fairseq's <unk>.
        unknown.add(tokenizer.get_vocab().get(UNKNOWN_PIECE))
    if tokenizer.is_fast:
        backend = json.loads(tokenizer.backend_tokenizer.to_str())
        unknown.add(backend["model"].get("unk_id"))
        token = backend["model"].get("unk_token")
        if token is not None:
            unknown.add(tokenizer.backend_tokenizer.token_to_id(token))
        if "ByteLevel" in json.dumps(backend["pre_tokenizer"]):
            # GPT-2 has one token for all three, and no unknown text.
            unknown -= {tokenizer.bos_token_id, tokenizer.eos_token_id}
    return {token_id for token_id in unknown if token_id is not None}


def _encode(
    parts: list[str], tokenizer: PreTrainedTokenizerBase
) -> tuple[np.ndarray, np.ndarray | None, list[int]]:
    """Return the tokens of all parts, their first characters, and each part's first position.

    Parts without tokens have no first position.
    """
    tokens: list[int] = []
    offsets: list[int] = []
    document_starts = []
    begin = 0
    for part in parts:
        encoded = tokenizer(
            part,
            add_special_tokens=False,
            return_offsets_mapping=tokenizer.is_fast,
            verbose=False,
        )
        if encoded["input_ids"]:
            # The text of a document without tokens belongs to a neighboring document.
            document_starts.append(len(tokens))
        tokens += encoded["input_ids"]
        if tokenizer.is_fast:
            offsets += [begin + first for first, _ in encoded["offset_mapping"]]
        begin += len(part)
    ids = np.array(tokens, dtype=np.int64)
    if not tokenizer.is_fast:
        return ids, None, document_starts
    return ids, np.array([*offsets, begin], dtype=np.int64), document_starts
