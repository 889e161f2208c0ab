"""The data of a study: a text prepared, and cut to what is trained on and what is tested."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from ...data.excerpt import excerpt, first, sample, until
from ...data.own_text import OwnText
from ...data.pipeline import Corpus
from ...data.pipeline import prepare as prepare_data
from ...data.wikitext103 import WikiText103
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
        is_folder = source.is_dir()
        text: Corpus = WikiText103(
            archive=None if is_folder else source,
            from_dir=source if is_folder else None,
            allow_other_text=True,
        )
        if corpus.layout == "text":
            if corpus.sample:
                drawn = folder / "sample" / manifests.other_name(source)
                source = sample(source, drawn, corpus.sample)
            text = OwnText([source], vocab_size=corpus.vocabulary, held_out=HELD_OUT)
        prepare_data(text, folder / "prepared")
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
    manifest = manifests.load(binary)
    text = manifest["corpus"] if manifest else manifests.other_name(source)
    out = folder / f"{text}-study"
    stamp = Stamp(
        folder / f"{out.name}.json",
        {"train": corpus.train, "test": corpus.test, "vocabulary": corpus.vocabulary},
        [binary / name for name in ("dict.txt", "train.bin", "test.bin")],
        [out / name for name in ("dict.txt", "train.bin", "test.bin")],
    )
    return out, stamp


def cut(corpus: StudyCorpus, source: Path, out: Path) -> None:
    """Make the folder that is trained and tested on.

    Training and validation are the beginnings of their splits. The test is the beginning of each of
    so many documents of the test split.
    """
    count, tokens = corpus.test
    starts: list[int] = []

    def beginnings(lines, dictionary) -> list:
        test: list = []
        for each in islice(documents(lines, dictionary, corpus.documents), count):
            starts.append(sum(map(len, test)))
            test += until(lines, each, tokens)
        if len(starts) < 2:
            raise BadInput(
                f"{source}: the test split has {len(starts)} documents; intervals need at least two."
            )
        return test

    splits = {"train": first(corpus.train), "valid": first(VALID), "test": beginnings}
    excerpt(source, out, splits, corpus.vocabulary)
    with atomic_write(out / DOCUMENTS) as stream:
        json.dump({"test": starts}, stream)


def documents(lines: Sequence, dictionary, kind: str) -> Iterator[range]:
    """The lines of each document, without what stands before the first one.

    Args:
        lines: 1-D tensors that end with the end-of-sentence symbol.
        dictionary: a ``fairseq.data.Dictionary``.
        kind: ``titles``: lines of the form " = Title = ", as in WikiText; ``empty-lines``: an empty line
            ends a document, as in texts that ``alibi-fairseq prepare text`` made.
    """
    mark, begin = dictionary.index("="), None  # begin: None between documents
    for number in range(len(lines)):
        line = lines[number].tolist()
        empty = len(line) == 1
        # " = = Section = = " has two marks.
        title = len(line) >= 4 and line[0] == line[-2] == mark and line[1] != mark
        if begin is not None and (title if kind == "titles" else empty):
            yield range(begin, number)
            begin = None
        if begin is None and (title if kind == "titles" else not empty):
            begin = number
    if begin is not None:
        yield range(begin, len(lines))


def document_starts(data: Path) -> list[int]:
    """Positions in the test split where a document begins."""
    return json.loads((data / DOCUMENTS).read_text(encoding="utf-8"))["test"]
