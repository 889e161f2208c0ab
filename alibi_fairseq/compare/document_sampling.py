"""Parts of texts, for small models: documents drawn, one dictionary for all, and what is kept of each split."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from ..data.custom_text import ENDINGS, CustomTextBuilder
from ..data.sources import text_files, texts
from ..data.tokenization import SentencePiece, Tokenizer, train_sentencepiece
from ..data.truncation import excerpt, first, take_until
from ..data.worker_pool import cores
from ..errors import UserInputError
from ..evaluation.data import load_dictionary, load_split
from ..files import atomic_folder, atomic_write, sha256_file
from ..results import manifest as manifests
from ..results.completion import CompletionMarker
from ..results.data_folder import DOCUMENTS_FILE, DataFolder
from .comparison_config import CorpusConfig, ExcerptConfig

#: Where an article of WikiText begins: at " = Title = "; " = = Section = = " has two marks.
TITLE = re.compile(rb"(?=^ ?= (?!= ).* = ?$)", re.MULTILINE)


def sources_of(corpus: CorpusConfig, out: Path) -> Sequence[str]:
    """The files of a text; a folder with a file per document, if they were told apart or drawn."""
    if corpus.documents == "files" and not corpus.sample:
        return corpus.text
    drawn = out / corpus.name / "documents" / manifests.other_name(corpus.text[0])
    titles = corpus.documents == "titles"
    ending = ".tokens" if titles else ".txt"
    files = text_files(corpus.text, (ending,) if titles else ENDINGS)
    settings = {"documents": corpus.documents, "sample": corpus.sample}
    stamp = CompletionMarker(drawn.with_suffix(".json"), settings, files)
    if not (drawn.is_dir() and stamp.holds()):
        contents = (stream.read() for file in files for _, stream in texts(file, ending))
        found = [
            part for text in contents for part in (TITLE.split(text)[1:] if titles else [text])
        ]
        shutil.rmtree(drawn, ignore_errors=True)
        with atomic_folder(drawn) as folder:
            taken = 0
            for digest, text in sorted((hashlib.sha256(text).hexdigest(), text) for text in found):
                if corpus.sample and taken >= corpus.sample:
                    break
                (folder / f"{digest[:16]}.txt").write_bytes(text)
                taken += len(text)
        stamp.write()
    return [str(drawn)]


@dataclass
class SharedVocabulary(CustomTextBuilder):
    """A text with the sentencepiece model of several."""

    model: Path = Path()

    def settings(self) -> dict:
        return {**super().settings(), "vocabulary_sha256": sha256_file(self.model)}

    def tokeniser(self, work: Path) -> Tokenizer:
        return SentencePiece(self.model)


def shared_model(texts: Mapping[str, CustomTextBuilder], entries: int, folder: Path) -> Path:
    """A sentencepiece model, learned from the training splits of several texts."""
    model = folder / "sentencepiece.model"
    split = {
        name: replace(text, tokenizer="words", vocab_size=None) for name, text in texts.items()
    }
    described = {name: text.settings() for name, text in split.items()}
    settings = {"entries": entries, "texts": described}
    stamp = CompletionMarker(model.with_suffix(".json"), settings, [], [model])
    if not stamp.holds():
        model.unlink(missing_ok=True)
        for name, text in split.items():
            shutil.rmtree(folder / name, ignore_errors=True)
            (folder / name).mkdir(parents=True)
            text.read(folder / name, cores())
        lines = (text.sample(folder / name) for name, text in split.items())
        train_sentencepiece(itertools.chain.from_iterable(lines), model, entries)
        for name in split:
            shutil.rmtree(folder / name)
        stamp.write()
    return model


def cut(prepared: Path, out: Path, kept: ExcerptConfig) -> None:
    """Make the data that is trained and tested on.

    Training and validation are the beginnings of their splits. The test is the beginning of each of
    the first documents that are long enough; ``documents.json`` says where these begin.
    """
    began = time.time()
    starts: list[int] = []

    def beginnings(lines) -> list:
        test: list = []
        for document in documents_in(lines):
            if len(starts) < kept.documents and sum(len(lines[n]) for n in document) >= kept.tokens:
                starts.append(sum(map(len, test)))
                test += take_until((lines[n] for n in document), kept.tokens)
        if len(starts) < kept.documents:
            raise UserInputError(
                f"{prepared}: {len(starts)} documents of the test split have {kept.tokens:,} tokens, "
                f"not {kept.documents}; ask for fewer or shorter ones, or give more text."
            )
        return test

    splits = {"train": first(kept.train), "valid": first(kept.valid), "test": beginnings}
    excerpt(prepared, out, splits)
    with atomic_write(out / DOCUMENTS_FILE) as stream:
        json.dump({"test": starts}, stream)
    whole = DataFolder.open(prepared).manifest
    assert whole is not None
    for name in whole["tokenizer"]["files"]:
        shutil.copyfile(prepared / name, out / name)
    folder = DataFolder.open(out)
    dictionary, sizes = load_dictionary(out), {}
    for name in splits:
        split = load_split(folder, name, dictionary)
        size, text = {"tokens": len(split.tokens), "lines": len(split.line_starts)}, split.text
        if text.bytes and text.words:  # where the pieces tell
            sizes[name] = {**size, "words": text.words - size["lines"], "bytes": text.bytes}
    described = {key: whole[key] for key in ("identified_by", "tokenizer", "sources", "settings")}
    manifest = manifests.describe(
        out,
        corpus=f"{whole['corpus']}-excerpt",
        **described,
        splits=sizes,
        seconds=time.time() - began,
        excerpt=asdict(kept),
    )
    manifests.save(manifest, out)


def documents_in(lines: Sequence) -> Iterator[list[int]]:
    """The lines of each document of a prepared text, without the empty one at its end."""
    numbers = range(len(lines))
    for empty, document in itertools.groupby(numbers, lambda number: len(lines[number]) == 1):
        if not empty:
            yield list(document)
