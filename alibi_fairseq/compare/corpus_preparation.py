"""Binary data of a comparison's corpora."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from ..data.custom_text import CustomTextBuilder
from ..data.documents import DocumentBeginnings, sample_documents, write_document_starts
from ..data.pipeline import prepare as prepare_text
from ..data.probes import PROBES
from ..data.probes import prepare as prepare_probe
from ..data.shared_vocabulary import SharedVocabularyBuilder, train_shared_model
from ..data.truncation import Choice, excerpt, first
from ..data.worker_pool import cores
from ..errors import UserInputError
from ..evaluation.data import load_dictionary, load_split
from ..results import manifest as manifests
from ..results.data_folder import DataFolder
from .comparison_config import CorpusConfig, ExcerptConfig

#: Percentage of the text held out for validation, and again for test.
HELD_OUT = 5.0
#: The same for an excerpt, which takes the beginnings of many test documents.
EXCERPT_HELD_OUT = 20.0


def data_folder(corpus: CorpusConfig, train_length: int, out: Path) -> Path:
    """Return the folder of the binary data to train on.

    The sequences of a probe are as long as the training length.
    """
    if corpus.probe:
        return out / corpus.name / f"data-{train_length}"
    return text_folder(corpus, out)


def text_folder(corpus: CorpusConfig, out: Path) -> Path:
    """Return the folder of a text's binary data. Some probes take their filler from it."""
    if corpus.data:
        return Path(corpus.data)
    return out / corpus.name / "data-bin"


def is_prepared(corpus: CorpusConfig, train_lengths: Sequence[int], out: Path) -> bool:
    """Return True if the binary data of a corpus exists."""
    folders = [data_folder(corpus, length, out) for length in train_lengths]
    if not all((folder / "train.bin").is_file() for folder in folders):
        return False
    return not corpus.excerpt or is_excerpt(text_folder(corpus, out), corpus.excerpt)


def is_excerpt(data: Path, size: ExcerptConfig) -> bool:
    """Return True if a data folder has an excerpt of this size."""
    manifest = DataFolder.open(data).manifest or {}
    return manifest.get("excerpt") == asdict(size)


def prepare(
    corpora: Sequence[CorpusConfig],
    train_lengths: Sequence[int],
    shared_vocabulary: int | None,
    out: Path,
) -> None:
    """Prepare the binary data of all corpora.

    Args:
        train_lengths: lengths of the probes' sequences.
        shared_vocabulary: number of dictionary entries that all texts share. None: each text has a
            dictionary.
        out: output folder of the comparison.
    """
    builders = {corpus.name: builder_of(corpus, out) for corpus in corpora if corpus.text}
    if shared_vocabulary and builders:
        model = train_shared_model(builders, shared_vocabulary, out / "vocabulary")
        for name, builder in builders.items():
            builders[name] = SharedVocabularyBuilder(
                builder.sources, held_out=builder.held_out, model=model
            )
    for corpus in corpora:
        data = text_folder(corpus, out)
        if corpus.text:
            prepare_corpus(corpus, builders[corpus.name], data)
        if (corpus.text or corpus.data) and not (data / "train.bin").is_file():
            raise UserInputError(
                f"{data} has dict.txt, as binary data has, but no train.bin. "
                "Prepare the data again, or rename dict.txt if it is text."
            )
        if corpus.probe:
            probe = PROBES[corpus.probe]
            filler = data if probe.in_text else None
            for length in train_lengths:
                prepare_probe(probe, length, filler, data_folder(corpus, length, out))


def builder_of(corpus: CorpusConfig, out: Path) -> CustomTextBuilder:
    """Return the preparation of a text, after drawing its documents if the corpus asks for it."""
    sources: Sequence[str] = corpus.text
    if corpus.documents != "files" or corpus.sample:
        folder = out / corpus.name / "documents" / manifests.other_name(corpus.text[0])
        sample_documents(corpus.text, folder, corpus.documents, corpus.sample)
        sources = [str(folder)]
    held_out = EXCERPT_HELD_OUT if corpus.excerpt else HELD_OUT
    return CustomTextBuilder(sources, corpus.tokenizer, corpus.vocabulary, held_out)


def prepare_corpus(corpus: CorpusConfig, builder: CustomTextBuilder, data: Path) -> None:
    """Prepare a text, and cut its excerpt if the corpus has one.

    Args:
        data: the folder of binary data to write.
    """
    if not corpus.excerpt:
        prepare_text(builder, data.parent, cores())
        return
    whole = data.parent / "prepared"
    prepare_text(builder, whole, cores())
    if not is_excerpt(data, corpus.excerpt):
        cut_excerpt(whole / "data-bin", data, corpus.excerpt)


def cut_excerpt(whole: Path, out: Path, size: ExcerptConfig) -> None:
    """Write an excerpt of a prepared text, with a manifest.

    Training and validation are the beginnings of their splits. The test split has the beginnings of
    the first documents that are long enough, and ``documents.json`` has their positions.

    Args:
        whole: folder of the prepared text's binary data.
        out: the folder to create or replace.
    """
    began = time.time()
    beginnings = DocumentBeginnings(whole, size.documents, size.tokens)
    splits: dict[str, Choice] = {
        "train": first(size.train),
        "valid": first(size.valid),
        "test": beginnings,
    }
    excerpt(whole, out, splits)
    write_document_starts(out, {"test": beginnings.starts})
    described = DataFolder.open(whole).manifest
    assert described is not None
    for name in described["tokenizer"]["files"]:
        shutil.copyfile(whole / name, out / name)
    manifest = manifests.describe(
        out,
        corpus=f"{described['corpus']}-excerpt",
        identified_by=described["identified_by"],
        tokenizer=described["tokenizer"],
        sources=described["sources"],
        settings=described["settings"],
        splits=split_sizes(out, list(splits)),
        seconds=time.time() - began,
        excerpt=asdict(size),
    )
    manifests.save(manifest, out)


def split_sizes(data: Path, names: Sequence[str]) -> dict[str, dict[str, int]]:
    """Return the sizes of splits for the manifest, where the tokens show words and bytes."""
    folder = DataFolder.open(data)
    dictionary = load_dictionary(data)
    sizes = {}
    for name in names:
        split = load_split(folder, name, dictionary)
        text = split.text
        if not text.words or not text.bytes:
            continue
        lines = len(split.line_starts)
        sizes[name] = {
            "tokens": len(split.tokens),
            "lines": lines,
            "words": text.words - lines,  # line ends count as words in `text`
            "bytes": text.bytes,
        }
    return sizes
