"""Samples of the documents of a raw text."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path

from alibi_fairseq.completion_marker import CompletionMarker
from alibi_fairseq.data.custom_text import ENDINGS
from alibi_fairseq.data.sources import open_texts, text_files
from alibi_fairseq.data.wikitext103 import ARTICLE_START
from alibi_fairseq.files import atomic_folder


def sample_documents(
    sources: Sequence[str], folder: Path, boundaries: str, sample: int | None
) -> None:
    """Write a sample of documents, one file each, unless it is already complete.

    The order of the draw depends only on the contents of the documents. Repeated documents are
    kept once, and count once toward the sample.

    Args:
        sources: files, archives, or folders.
        folder: the folder to create or replace. A completion marker is written next to it.
        boundaries: ``files``: a file is a document. ``titles``: a title begins a document.
        sample: number of bytes to reach, if there are as many. None: write all documents.
    """
    by_title = boundaries == "titles"
    file_endings: tuple[str, ...]
    if by_title:
        file_endings = (".tokens",)
        ending_in_archives = ".tokens"
    else:
        file_endings = ENDINGS
        ending_in_archives = ".txt"
    files = text_files(sources, file_endings)
    settings = {"documents": boundaries, "sample": sample}
    marker = CompletionMarker(folder.with_suffix(".json"), settings, files)
    if folder.is_dir() and marker.holds():
        return
    documents: list[bytes] = []
    for file in files:
        for _, stream in open_texts(file, ending_in_archives):
            text = stream.read()
            if by_title:
                # Text before the first title is no document.
                documents += ARTICLE_START.split(text)[1:]
            else:
                documents.append(text)
    distinct = {hashlib.sha256(document).hexdigest(): document for document in documents}
    # First, so that a marker never describes other documents after an interruption.
    marker.path.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    with atomic_folder(folder) as unfinished:
        size = 0
        for digest, document in sorted(distinct.items()):
            if sample and size >= sample:
                break
            (unfinished / f"{digest[:16]}.txt").write_bytes(document)
            size += len(document)
    marker.write()
