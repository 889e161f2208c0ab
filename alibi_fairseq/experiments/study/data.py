"""The data of a study: a text prepared, and cut to what is trained on and what is tested."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from fairseq.data import Dictionary, data_utils, indexed_dataset

from ...dataprep import own_text, wikitext103
from ...dataprep.sources import text_files, texts
from ...errors import BadInput
from ...files import atomic_write
from ...results import manifest as manifests
from ...results.stamps import Stamp
from .description import StudyCorpus

#: Where the documents of the test split begin, in tokens.
DOCUMENTS = "documents.json"
#: Tokens of the validation that trainings record.
VALID = 8192
#: Per cent of a text's bytes for each of validation and test: many documents, of which little is taken.
HELD_OUT = 20


def prepare(corpus: StudyCorpus, source: Path, folder: Path) -> Path:
    """The data of a corpus.

    Args:
        source: its text; or a folder of binary data that ``alibi-fairseq prepare`` made of it.
        folder: for everything.

    Returns:
        The folder that is trained and tested on. Its name is the text's with ``-study``.
    """
    binary = _binary_folder(source, folder)
    if binary != source:
        _prepare_text(corpus, source, folder)
    out, stamp = _cut_data(corpus, binary, source, folder)
    if not stamp.holds():
        cut(corpus, binary, out)
        stamp.write()
    return out


def prepared(corpus: StudyCorpus, source: Path, folder: Path) -> Path | None:
    """What :func:`prepare` returns if nothing is left to do; otherwise None."""
    binary = _binary_folder(source, folder)
    if not (binary / "dict.txt").is_file():
        return None
    out, stamp = _cut_data(corpus, binary, source, folder)
    return out if stamp.holds() else None


def _binary_folder(source: Path, folder: Path) -> Path:
    return source if (source / "dict.txt").is_file() else folder / "prepared" / "data-bin"


def _cut_data(corpus: StudyCorpus, binary: Path, source: Path, folder: Path) -> tuple[Path, Stamp]:
    out = folder / f"{_text_name(binary, source)}-study"
    stamp = Stamp(
        folder / f"{out.name}.json",
        {"train": corpus.train, "test": corpus.test, "vocabulary": corpus.vocabulary},
        [binary / name for name in ("dict.txt", "train.bin", "test.bin")],
        [out / name for name in ("dict.txt", "train.bin", "test.bin")],
    )
    return out, stamp


def _prepare_text(corpus: StudyCorpus, source: Path, folder: Path) -> None:
    out = folder / "prepared"
    if corpus.layout == "wikitext-103":
        is_folder = source.is_dir()
        wikitext103.prepare(
            out,
            archive=None if is_folder else source,
            from_dir=source if is_folder else None,
            allow_other_text=True,
        )
    else:
        sources = [source]
        if corpus.sample:
            sources = [
                sample(source, folder / "sample" / manifests.other_name(source), corpus.sample)
            ]
        own_text.prepare(sources, out, vocabulary=corpus.vocabulary, held_out=HELD_OUT)


def _text_name(binary: Path, source: Path) -> str:
    described = manifests.load(binary)
    return described["corpus"] if described else manifests.other_name(source)


def sample(source: Path, out: Path, most: int) -> Path:
    """Copy whole documents, drawn by their contents, until there are so many bytes.

    Returns:
        ``out``, a folder with a file per document.
    """
    if out.is_dir():
        return out
    found = []
    for file in text_files(source):
        for _, stream in texts(file, lambda read: None):
            content = stream.read()
            found.append((hashlib.sha256(content).hexdigest(), content))
    unfinished = out.with_name(f".{out.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    taken = 0
    for digest, content in sorted(found):
        if taken >= most:
            break
        (unfinished / f"{digest[:16]}.txt").write_bytes(content)
        taken += len(content)
    os.replace(unfinished, out)
    return out


def cut(corpus: StudyCorpus, source: Path, out: Path) -> None:
    """Make the folder that is trained and tested on.

    Training and validation are the beginnings of their splits. The test is the beginning of each of
    so many documents of the test split.

    Raises:
        BadInput: there are too few documents.
    """
    from .documents import documents

    with open(source / "dict.txt", encoding="utf-8") as stream:
        entries = list(islice(stream, corpus.vocabulary))  # the most frequent first
    unfinished = out.with_name(f".{out.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    (unfinished / "dict.txt").write_text("".join(entries), encoding="utf-8")
    dictionary = Dictionary.load(str(unfinished / "dict.txt"))
    lines = {split: _lines(source, split, dictionary) for split in ("train", "valid", "test")}
    for split, most in (("train", corpus.train), ("valid", VALID)):
        _write(unfinished, split, dictionary, _until(lines[split], range(len(lines[split])), most))
    count, tokens = corpus.test
    starts, test, at = [], [], 0
    for each in islice(documents(lines["test"], dictionary, corpus.documents), count):
        taken = list(_until(lines["test"], each, tokens))
        starts.append(at)
        at += sum(map(len, taken))
        test += taken
    if len(starts) < 2:
        raise BadInput(
            f"{source}: the test split has {len(starts)} documents; intervals need at least two."
        )
    _write(unfinished, "test", dictionary, test)
    with atomic_write(unfinished / DOCUMENTS) as stream:
        json.dump({"test": starts}, stream)
    shutil.rmtree(out, ignore_errors=True)
    os.replace(unfinished, out)


def _lines(source: Path, split: str, dictionary: Dictionary):
    found = data_utils.load_indexed_dataset(str(source / split), dictionary)
    if found is None:
        raise BadInput(f"There is no split '{split}' in {source}.")
    return found


def _until(lines, numbers: range, most: int) -> Iterator:
    taken = 0
    for number in numbers:
        if taken >= most:
            return
        line = lines[number]
        taken += len(line)
        yield line


def _write(folder: Path, split: str, dictionary: Dictionary, lines) -> None:
    prefix = str(folder / split)
    builder = indexed_dataset.make_builder(f"{prefix}.bin", impl="mmap", vocab_size=len(dictionary))
    for line in lines:
        ids = line.clone()
        ids[ids >= len(dictionary)] = dictionary.unk()
        builder.add_item(ids)
    builder.finalize(f"{prefix}.idx")


def document_starts(data: Path) -> list[int]:
    """Positions in the test split where a document begins."""
    return json.loads((data / DOCUMENTS).read_text(encoding="utf-8"))["test"]
