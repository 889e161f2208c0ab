"""The Toronto BookCorpus, or any other books, as the paper uses them: whole books held out, 29k
sub-word vocabulary.

``alibi-fairseq prepare bookcorpus``; see data-prep/bookcorpus/README.md.
"""

from __future__ import annotations

import functools
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from alibi_fairseq.dataprep.binarise import binarise
from alibi_fairseq.dataprep.books import count_raw, is_line_edition, normalise_to, units
from alibi_fairseq.dataprep.duplicates import groups, keep_one_in, shingles
from alibi_fairseq.dataprep.encode import encode_file
from alibi_fairseq.dataprep.parallel import map_in_order
from alibi_fairseq.dataprep.progress import progress
from alibi_fairseq.dataprep.sources import describe_sources, estimated_text_bytes, text_files
from alibi_fairseq.dataprep.splits import (
    SPLITS,
    Book,
    apply_list,
    shuffle_key,
    split_blocks,
    split_books,
    write_list,
)
from alibi_fairseq.dataprep.tokenisers import (
    SentencePiece,
    Tokeniser,
    WordPiece,
    train_sentencepiece,
)
from alibi_fairseq.dataprep.workspace import Workspace
from alibi_fairseq.errors import BadInput
from alibi_fairseq.files import atomic_write, check_disk, sha256_file
from alibi_fairseq.results import manifest as manifests

CORPUS = "bookcorpus"
LINES, TOKENS = 74_004_228, 984_846_357  # of the edition with one sentence per line
VOCABULARY = 29_000  # dictionary entries; the paper says 29K
LIST_NAME = "splits.tsv"
_TEXT_BYTES = 5 * TOKENS  # about: a word and a space
_SAMPLE = 256_000_000  # bytes of text that sentencepiece is trained on at most


def prepare(
    sources: list[str | os.PathLike],
    out: str | os.PathLike,
    *,
    seed: int = 1,
    held_out: float = 1.0,
    split_list: str | os.PathLike | None = None,
    vocabulary: int = VOCABULARY,
    wordpiece: str | os.PathLike | None = None,
    allow_other_text: bool = False,
    workers: int = 1,
) -> tuple[dict, bool]:
    """Make ``OUT/data-bin``.

    Args:
        sources: folders or archives of books (one ``.txt`` each), or the file(s) with one sentence
            per line, whose numbers of lines and tokens are checked.
        held_out: percent of the books for each of validation and test.
        split_list: the list of another run, for the same split.
        vocabulary: dictionary entries of the sentencepiece BPE trained on the training split.
        wordpiece: BERT's ``vocab.txt``, instead of training a tokeniser.
        allow_other_text: accept plain files that are not the Toronto BookCorpus.

    Returns:
        The manifest, and whether there was anything to do.

    Raises:
        BadInput: a source or an option is wrong.
    """
    started = time.time()
    paths = [Path(source) for source in sources]
    files = [file for path in paths for file in text_files(path)]
    if not 0 < held_out < 50:
        raise BadInput(f"--held-out is a percentage above 0 and below 50, not {held_out}.")
    settings = {
        "sources": describe_sources(files),
        "seed": seed,
        "held_out": held_out,
        "split_list": split_list and _read_split_list(split_list),
        "vocabulary": None if wordpiece else vocabulary,
        "wordpiece": wordpiece and _read_wordpiece(wordpiece),
    }
    workspace = Workspace(out, settings)
    if manifest := workspace.finished():
        return manifest, False
    check_disk(out, disk_needed(files), "The preparation")
    with workspace:
        line_edition = is_line_edition(paths)
        genuine = line_edition and _is_genuine(workspace, paths, files, allow_other_text)
        texts = workspace.work / "text"
        found = workspace.step("normalise", lambda: _normalise(paths, files, texts, workers))
        books = [Book(entry["name"], entry["sha256"]) for entry in found["books"]]
        words = sum(entry["words"] for entry in found["books"])
        grouping = workspace.step("group", lambda: _group(books, texts, words, workers))
        for book, group in zip(books, grouping["groups"]):
            book.group = group
        if split_list:
            apply_list(books, Path(split_list))
        elif line_edition:
            split_blocks(books, held_out, seed)
        else:
            split_books(books, held_out, seed)
        if not line_edition:
            books.sort(key=lambda book: shuffle_key(seed, book.sha256))
        plain = {split: workspace.work / f"{split}.txt" for split in SPLITS}
        workspace.step("join", lambda: _join(books, texts, plain, blank_line=not line_edition))
        shutil.rmtree(texts, ignore_errors=True)
        load, arguments = _tokeniser(workspace, plain["train"], vocabulary, wordpiece)
        pieces = {split: workspace.work / f"{split}.pieces" for split in SPLITS}
        counts = {
            split: workspace.step(
                f"tokenise-{split}",
                functools.partial(
                    encode_file, plain[split], pieces[split], load, arguments, workers
                ),
            )
            for split in SPLITS
        }
        tokeniser = load(*arguments)
        dictionary = workspace.work / "dict.txt"
        tokeniser.write_dictionary(dictionary)
        if not workspace.unfinished_data_bin.exists():
            binarise(
                pieces,
                workspace.unfinished_data_bin,
                expected_tokens={split: counts[split]["tokens"] for split in SPLITS},
                dictionary=dictionary,
                workers=workers,
            )
        write_list(books, workspace.work / LIST_NAME)
        for file in (*tokeniser.files, workspace.work / LIST_NAME):
            workspace.add(file)
        for split in SPLITS:
            counts[split]["books"] = sum(book.split == split for book in books)
        manifest = manifests.describe(
            workspace.unfinished_data_bin,
            corpus=CORPUS if genuine else manifests.other_name(paths[0]),
            identified_by="lines and tokens" if genuine else None,
            splits=counts,
            tokenizer=tokeniser.describe(),
            sources=[
                {"name": file.name, "bytes": file.stat().st_size, "sha256": sha256_file(file)}
                for file in files
            ],
            settings=settings,
            seconds=time.time() - started,
            seed=seed,
            unit="block of lines" if line_edition else "book",
            near_duplicate_groups=len({book.group for book in books}),
        )
        workspace.publish(manifest)
    return manifest, True


def disk_needed(files: list[Path] | None) -> float:
    """Bytes that the preparation takes at its peak, about; None: of the edition with one
    sentence per line.
    """
    text = _TEXT_BYTES if files is None else sum(map(estimated_text_bytes, files))
    # Normalised text twice, its pieces, and the binary data of a part of it.
    return 3.5 * text


def _read_wordpiece(path: str | os.PathLike) -> str:
    WordPiece(path)  # fails before hours of work
    return sha256_file(path)


def _read_split_list(path: str | os.PathLike) -> str:
    try:
        return sha256_file(path)
    except OSError as error:
        raise BadInput(f"--split-list {path}: cannot be read ({error.strerror}).") from error


def _is_genuine(
    workspace: Workspace, paths: list[Path], files: list[Path], allow_other_text: bool
) -> bool:
    def count() -> dict:
        with progress(sum(file.stat().st_size for file in files), "counting") as bar:
            lines, words = count_raw(paths, bar.update)
        if (lines, words) != (LINES, TOKENS) and not allow_other_text:
            raise BadInput(
                f"The text has {lines:,} lines and {words:,} tokens, expected {LINES:,} and "
                f"{TOKENS:,}: this is not the Toronto BookCorpus with one sentence per line; "
                "--allow-other-text prepares it under another name, and a folder or archive "
                "with one file per book is split by books."
            )
        return {"lines": lines, "tokens": words}

    found = workspace.step("count", count)
    return (found["lines"], found["tokens"]) == (LINES, TOKENS)


def _normalise(paths: list[Path], files: list[Path], folder: Path, workers: int) -> dict:
    folder.mkdir(exist_ok=True)
    with progress(sum(file.stat().st_size for file in files), "normalising") as bar:
        work = functools.partial(_normalise_unit, folder)
        found = map_in_order(work, units(paths, bar.update), workers)
        books = [entry for entry in found if entry]
    if not books:
        raise BadInput(f"{paths[0]}: there are no words in it.")
    return {"books": books}


def _normalise_unit(folder: Path, unit: tuple[str, bytes]) -> dict | None:
    return normalise_to(folder, *unit)


def _group(books: list[Book], texts: Path, words: int, workers: int) -> dict:
    work = functools.partial(_shingles_of, keep_one_in(words))
    paths = [texts / f"{book.sha256}.txt" for book in books]
    found = []
    with progress(len(paths), "near-duplicates", "books") as bar:
        for book in map_in_order(work, paths, workers):
            found.append(book)
            bar.update()
    return {"groups": groups(found)}


def _shingles_of(one_in: int, path: Path):
    return shingles(path.read_text(encoding="utf-8"), one_in)


def _join(books: list[Book], texts: Path, plain: dict[str, Path], blank_line: bool) -> dict:
    """The text of each split; an empty line ends a book."""
    for split, path in plain.items():
        with atomic_write(path, "wb") as out:
            for book in books:
                if book.split == split:
                    out.write((texts / f"{book.sha256}.txt").read_bytes())
                    if blank_line:
                        out.write(b"\n")
    return {}


def _tokeniser(
    workspace: Workspace,
    train: Path,
    vocabulary: int,
    wordpiece: str | os.PathLike | None,
) -> tuple[type[Tokeniser], tuple]:
    if wordpiece:
        return WordPiece, (str(wordpiece),)
    model = workspace.work / "sentencepiece.model"
    if not model.exists():
        print("training sentencepiece …", flush=True)
        train_sentencepiece(sample_lines(train, _SAMPLE), model, vocabulary)
    return SentencePiece, (str(model),)


def sample_lines(path: Path, most: int) -> Iterator[str]:
    """Lines of a text spread evenly over it, at most about ``most`` bytes of them."""
    every = -(-path.stat().st_size // most)
    with open(path, encoding="utf-8", newline="\n") as stream:
        for number, line in enumerate(stream):
            if number % every == 0:
                yield line.rstrip("\n")
