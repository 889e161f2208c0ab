"""Excerpt of a prepared corpus: the beginnings of its splits, and of many test documents."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from alibi_fairseq.data.corpus_builder import SPLITS
from alibi_fairseq.data.iterables import batches, take_until
from alibi_fairseq.data.truncation import first_lines, load_lines, write_excerpt
from alibi_fairseq.errors import UserInputError
from alibi_fairseq.evaluation.split import load_dictionary
from alibi_fairseq.evaluation.text_size import measure_text_size
from alibi_fairseq.files import atomic_write
from alibi_fairseq.results import manifest as manifests
from alibi_fairseq.results.data_folder import DOCUMENTS_FILE, DataFolder

from .config import ExcerptConfig

if TYPE_CHECKING:
    from torch import Tensor

#: Tokens of a split that are counted at a time.
BATCH_TOKENS = 2**22


def is_excerpt(data: Path, size: ExcerptConfig, whole_manifest: dict | None = None) -> bool:
    """Return True if a data folder holds an excerpt of this size.

    Args:
        data: the folder.
        size: tokens of each split, and number of documents.
        whole_manifest: manifest of the prepared text that it must be cut from. None: any text.
    """
    manifest = DataFolder.open(data).manifest or {}
    if manifest.get("excerpt") != asdict(size):
        return False
    if whole_manifest is None:
        return True
    # The settings have the hashes of the sources.
    return manifest["settings"] == whole_manifest["settings"]


def cut_excerpt(whole: Path, out: Path, size: ExcerptConfig) -> None:
    """Write an excerpt of a prepared text, with a manifest.

    Training and validation are the beginnings of their splits. The test split has the beginnings of
    the first documents that are long enough, and ``documents.json`` has their positions.

    Args:
        whole: folder of the prepared text's binary data.
        out: the folder to create or replace.
        size: tokens of each split, and number of documents.

    Raises:
        UserInputError: the text is too short.
    """
    began = time.time()
    whole_manifest = DataFolder.open(whole).manifest
    assert whole_manifest is not None  # the preparation writes one
    for split, tokens in (("train", size.train), ("valid", size.valid)):
        existing_tokens = whole_manifest["splits"][split]["tokens"]
        if existing_tokens < tokens:
            raise UserInputError(
                f"{whole}: the split '{split}' has {existing_tokens:,} tokens, but the excerpt "
                f"needs {tokens:,}. Request fewer tokens, or provide more text."
            )
    lines = load_lines(whole, SPLITS)
    test_lines, starts = find_document_beginnings(lines["test"], size.documents, size.tokens)
    if len(starts) < size.documents:
        raise UserInputError(
            f"{whole}: {len(starts)} documents of the test split have {size.tokens:,} tokens, not "
            f"{size.documents}. Ask for fewer or shorter documents, or provide more text."
        )
    excerpt = {
        "train": first_lines(lines["train"], size.train),
        "valid": first_lines(lines["valid"], size.valid),
        "test": test_lines,
    }
    write_excerpt(whole, out, excerpt)
    write_document_starts(out, {"test": starts})
    for name in whole_manifest["tokenizer"]["files"]:
        shutil.copyfile(whole / name, out / name)
    manifest = manifests.describe(
        out,
        corpus=f"{whole_manifest['corpus']}-excerpt",
        identified_by=whole_manifest["identified_by"],
        tokenizer=whole_manifest["tokenizer"],
        sources=whole_manifest["sources"],
        settings=whole_manifest["settings"],
        splits=split_sizes(out, whole_manifest["tokenizer"].get("kind")),
        seconds=time.time() - began,
        excerpt=asdict(size),
    )
    manifests.save(manifest, out)


def documents_in(lines: Sequence) -> Iterator[list[int]]:
    """Yield the line numbers of each document of a prepared text.

    An empty line, which has only the end-of-sentence symbol, ends a document and is left out.
    """
    document: list[int] = []
    for number in range(len(lines)):
        if len(lines[number]) != 1:
            document.append(number)
        elif document:
            yield document
            document = []
    if document:
        yield document


def find_document_beginnings(
    lines: Sequence[Tensor], documents: int, tokens: int
) -> tuple[list[Tensor], list[int]]:
    """Return the first lines of documents, and the position of each document's first token in them.

    Args:
        lines: lines of a prepared text.
        documents: largest number of documents.
        tokens: tokens of each of them. Shorter documents are left out.
    """
    selected: list[Tensor] = []
    starts: list[int] = []
    size = 0
    for numbers in documents_in(lines):
        if len(starts) == documents:
            break
        document = [lines[number] for number in numbers]
        if sum(map(len, document)) < tokens:
            continue
        starts.append(size)
        beginning = list(take_until(document, tokens))
        selected += beginning
        size += sum(map(len, beginning))
    return selected, starts


def write_document_starts(data: Path, starts: dict[str, list[int]]) -> None:
    """Write the positions at which documents start, by split, into a data folder."""
    with atomic_write(data / DOCUMENTS_FILE) as stream:
        json.dump(starts, stream)


def split_sizes(data: Path, tokenizer_kind: str | None) -> dict[str, dict[str, int]]:
    """Return the sizes of the splits for the manifest.

    Splits whose words and bytes cannot be counted from their tokens are left out. A few lines are
    counted at a time, because a split may be larger than the memory.

    Args:
        data: folder of the binary data, without a manifest.
        tokenizer_kind: kind of the tokenizer, or None if it is unknown.
    """
    dictionary = load_dictionary(data)
    sizes = {}
    for name, lines in load_lines(data, SPLITS).items():
        total = {"tokens": 0, "lines": 0, "words": 0, "bytes": 0}
        in_order = (lines[number].numpy() for number in range(len(lines)))
        for batch in batches(in_order, BATCH_TOKENS, len):
            lengths = np.array([len(line) for line in batch])
            starts = (np.cumsum(lengths) - lengths)[lengths > 0]
            size = measure_text_size(np.concatenate(batch), starts, dictionary, tokenizer_kind)
            if size.words is None or size.bytes is None:
                break
            total["tokens"] += int(lengths.sum())
            total["lines"] += len(starts)
            # The text size counts each newline as a word.
            total["words"] += size.words - len(starts)
            total["bytes"] += size.bytes
        else:
            sizes[name] = total
    return sizes
