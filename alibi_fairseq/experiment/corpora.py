"""Binary data of a comparison's corpora."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..completion_marker import check_settings
from ..data.custom_text import CustomTextBuilder
from ..data.pipeline import prepare_corpus
from ..data.probe_data import prepare_probe
from ..data.probes import MULTIPLES, PROBES
from ..data.sources import check_output_folder
from ..errors import UserInputError
from ..evaluation.documents import one_document
from ..files import sha256_if_present
from ..machine import cores
from ..results.data_folder import DataFolder
from .schema import Corpus

#: Files of a text that are listed by name.
MAX_LISTED_FILES = 3


@dataclass
class TextWithDocuments(CustomTextBuilder):
    """Text of which some splits must have several documents.

    A split without them is found before a tokenizer is trained, and a rerun can divide the text in
    another way.

    Attributes:
        in_documents: the splits, whose documents are separated by empty lines.
    """

    in_documents: Collection[str] = ()

    def write_normalized_text(self, work: Path, workers: int) -> dict:
        entries = super().write_normalized_text(work, workers)
        for split, path in self.split_files(work).items():
            if split in self.in_documents and not has_several_documents(path):
                raise one_document("empty-lines", f"'{split}' of the text")
        return entries


def has_several_documents(path: Path) -> bool:
    """Return True if a line with text follows an empty one in a normalized text."""
    after_empty_line = False
    with open(path, "rb") as lines:
        for line in lines:
            is_empty = line == b"\n"
            if after_empty_line and not is_empty:
                return True
            after_empty_line = is_empty
    return False


def data_folder(corpus: Corpus, train_length: int, out: Path) -> Path:
    """Return the folder of the binary data to train on.

    The sequences of a probe are as long as the training length.
    """
    if corpus.probe:
        return out / corpus.name / f"data-{train_length}"
    return text_folder(corpus, out)


def text_folder(corpus: Corpus, out: Path) -> Path:
    """Return the folder of a text's binary data. Some probes take their filler from it."""
    if corpus.data:
        return Path(corpus.data)
    return out / corpus.name / "data-bin"


def is_prepared(corpus: Corpus, train_lengths: Sequence[int], out: Path) -> bool:
    """Return True if the binary data of a corpus exists."""
    for length in train_lengths:
        folder = data_folder(corpus, length, out)
        if not (folder / "train.bin").is_file():
            return False
    return True


def prepare_corpora(
    corpora: Sequence[Corpus],
    train_lengths: Sequence[int],
    out: Path,
    in_documents: Mapping[str, Collection[str]],
) -> None:
    """Prepare the binary data of all corpora.

    A text that is missing on this machine is not needed if its binary data was prepared before, on
    this or on another machine.

    Args:
        train_lengths: lengths of the probes' sequences.
        out: output folder of the comparison.
        in_documents: splits that need several documents, by name of the corpus.

    Raises:
        UserInputError: a folder of binary data is incomplete, prepared data has other settings, the
            output folder is in a folder of text, or a split needs more documents.
    """
    for corpus in corpora:
        # A corpus has a text, binary data, a probe, or a probe whose filler is one of the others.
        data = text_folder(corpus, out)
        check_output_folder(out, corpus.text)
        if is_missing(corpus.text) and has_prepared_text(data):
            check_prepared_text(corpus, data)
        elif corpus.text:
            builder = text_builder(corpus, in_documents.get(corpus.name, ()))
            prepare_corpus(builder, data.parent, cores())
        for name in ("dict.txt", "train.bin"):
            if (corpus.text or corpus.data) and not (data / name).is_file():
                raise UserInputError(
                    f"{data} is not a folder of binary data, since it has no {name}. Prepare the "
                    f"data again, or correct the path in 'data' of the corpus '{corpus.name}'."
                )
        if corpus.probe:
            probe = PROBES[corpus.probe]
            filler = data if probe.in_text else None
            for length in train_lengths:
                prepare_probe(probe, length, filler, data_folder(corpus, length, out))


def check_split(corpus: Corpus, split: str, out: Path) -> None:
    """Check that a text has the split to evaluate on.

    Raises:
        UserInputError: it has not.
    """
    folder = text_folder(corpus, out)
    if not (folder / f"{split}.bin").is_file():
        splits = ", ".join(sorted(path.stem for path in folder.glob("*.bin")))
        raise UserInputError(f"--subset: {folder} has no split '{split}'. Choose from {splits}.")


def check_same_dictionary(corpora: Sequence[Corpus], out: Path) -> None:
    """Check that models can be evaluated on the other corpora.

    Raises:
        UserInputError: two corpora have different dictionaries.
    """
    first, *others = corpora
    dictionary = sha256_if_present(text_folder(first, out) / "dict.txt")
    for corpus in others:
        if sha256_if_present(text_folder(corpus, out) / "dict.txt") != dictionary:
            raise UserInputError(
                f"also_on: {first.name} and {corpus.name} have different dictionaries. Prepare one "
                "with the dict.txt of the other (fairseq-preprocess --srcdict), and give the "
                "folder as 'data'."
            )


def describe_corpus(corpus: Corpus, out: Path) -> str:
    """Return one line about a probe, or about a text: its files, tokens, and binary data."""
    if corpus.probe:
        multiples = ", ".join(map(str, MULTIPLES))
        return (
            f"Probe {corpus.name}: tested at {multiples} times the training length; "
            "--lengths applies to texts only"
        )
    data = text_folder(corpus, out)
    manifest = DataFolder.open(data).manifest
    if manifest is None:  # binary data that fairseq-preprocess made
        return f"Text {corpus.name}: {data}"
    files = [source["name"] for source in manifest["sources"]]
    listed = ", ".join(files[:MAX_LISTED_FILES])
    if len(files) > MAX_LISTED_FILES:
        listed = f"{len(files)} files ({listed}, …)"
    splits = []
    for split, counts in manifest["splits"].items():
        splits.append(f"{counts['tokens']:,} in {split}")
    tokens = ", ".join(splits)
    return f"Text {corpus.name}: {listed or data}; tokens: {tokens}; data: {data}"


def is_missing(sources: Sequence[str]) -> bool:
    """Return True if a text is given, but this machine has none of its files."""
    for source in sources:
        path = Path(source)
        if path.is_file() or (path.is_dir() and any(path.iterdir())):
            return False
    return bool(sources)


def has_prepared_text(data: Path) -> bool:
    """Return True if the binary data of a text is complete."""
    return (data / "train.bin").is_file() and DataFolder.open(data).manifest is not None


def check_prepared_text(corpus: Corpus, data: Path) -> None:
    """Check the settings of binary data whose text is missing, and report that it is used.

    Raises:
        UserInputError: a setting differs.
    """
    manifest = DataFolder.open(data).manifest
    assert manifest is not None
    existing = manifest["settings"]
    # Hashes of the text cannot be compared.
    wanted = existing | text_builder(corpus).settings_without_sources()
    advice = "Provide the text, or move that folder away."
    check_settings(existing, wanted, f"{data} was prepared", advice)
    text = " ".join(map(str, corpus.text))
    print(f"The text of {corpus.name} ({text}) is missing. Using the prepared data in {data}.")


def text_builder(corpus: Corpus, in_documents: Collection[str] = ()) -> TextWithDocuments:
    """Return the builder of a text's binary data."""
    return TextWithDocuments(
        corpus.text,
        corpus.tokenizer,
        corpus.vocabulary,
        corpus.held_out,
        in_documents=in_documents,
    )
