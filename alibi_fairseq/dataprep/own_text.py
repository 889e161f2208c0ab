"""The user's own text: any files, whole documents held out, words or sentencepiece pieces.

``alibi-fairseq prepare text``; see docs/compare.md.
"""

from __future__ import annotations

import functools
import hashlib
import io
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from alibi_fairseq.dataprep.binarise import binarise
from alibi_fairseq.dataprep.bookcorpus import sample_lines
from alibi_fairseq.dataprep.encode import encode_file
from alibi_fairseq.dataprep.progress import progress
from alibi_fairseq.dataprep.sources import estimated_text_bytes, text_files, texts
from alibi_fairseq.dataprep.splits import SPLITS
from alibi_fairseq.dataprep.text import not_utf8, single_spaced
from alibi_fairseq.dataprep.tokenisers import SPECIAL, SentencePiece, train_sentencepiece
from alibi_fairseq.dataprep.workspace import Workspace
from alibi_fairseq.errors import BadInput
from alibi_fairseq.files import atomic_write, check_disk, sha256_file
from alibi_fairseq.results import manifest as manifests

TOKENIZERS = ("sentencepiece", "words")
#: Files of a folder that are read; files named one by one may have any name.
ENDINGS = (".txt", ".md", ".rst")
_LEAST_BYTES = 10_000
_SAMPLE = 256_000_000  # bytes of text that sentencepiece is trained on at most
_SYMBOLS = {"<s>", "<pad>", "</s>", "<unk>"}  # in every fairseq dictionary


def prepare(
    sources: Sequence[str | os.PathLike],
    out: str | os.PathLike,
    *,
    tokenizer: str = "sentencepiece",
    vocabulary: int | None = None,
    held_out: float = 5.0,
    seed: int = 1,
    workers: int = 1,
) -> tuple[dict, bool]:
    """Make ``OUT/data-bin`` with the splits train, valid and test.

    A document is a file, or a member of an archive; white space is normalised to single spaces and
    empty lines are dropped, except one at the end of each document.

    Args:
        sources: files, archives and folders of text.
        tokenizer: ``words`` are separated by white space; ``sentencepiece`` is a BPE with byte
            fallback, trained on the training split.
        vocabulary: dictionary entries. Default: all words; for sentencepiece one per 1,000 bytes of
            text, between 1,000 and 16,000.
        held_out: percent of the bytes for each of validation and test.
        seed: determines which documents are held out.

    Returns:
        The manifest, and whether there was anything to do.

    Raises:
        BadInput: there is no text, too little of it, or it is not UTF-8.
    """
    started = time.time()
    if not 0 < held_out <= 25:
        raise BadInput(f"--held-out must be above 0 and at most 25 percent, not {held_out}.")
    files = [file for source in sources for file in text_files(source, ENDINGS)]
    described = [
        {"name": file.name, "bytes": file.stat().st_size, "sha256": sha256_file(file)}
        for file in files
    ]
    settings = {
        "sources": [source["sha256"] for source in described],
        "tokenizer": tokenizer,
        "vocabulary": vocabulary,
        "held_out": held_out,
        "seed": seed,
    }
    workspace = Workspace(out, settings)
    if manifest := workspace.finished():
        return manifest, False
    check_disk(out, 3.5 * sum(map(estimated_text_bytes, files)), "The preparation")
    with workspace:
        joined = workspace.work / "all.txt"
        sizes = workspace.step("normalise", lambda: _normalise(files, joined))["documents"]
        spans = split_documents(sizes, held_out, seed)
        plain = {split: workspace.work / f"{split}.txt" for split in SPLITS}
        workspace.step("split", lambda: _write_splits(joined, spans, sizes, held_out, plain))
        dictionary = workspace.work / "dict.txt"
        extra: list[Path] = []
        if tokenizer == "words":
            known = workspace.step("words", lambda: _word_dictionary(plain, dictionary, vocabulary))
            pieces, counts = plain, known["splits"]
        else:
            entries = vocabulary or min(16_000, max(1_000, sum(sizes) // 1000))
            model = workspace.work / "sentencepiece.model"
            if not model.exists():
                train_sentencepiece(sample_lines(plain["train"], _SAMPLE), model, entries)
            pieces = {split: workspace.work / f"{split}.pieces" for split in SPLITS}
            counts = {
                split: workspace.step(
                    f"tokenise-{split}",
                    functools.partial(
                        encode_file,
                        plain[split],
                        pieces[split],
                        SentencePiece,
                        (str(model),),
                        workers,
                    ),
                )
                for split in SPLITS
            }
            SentencePiece(model).write_dictionary(dictionary)
            extra = [model]
        if not workspace.unfinished_data_bin.exists():
            binarise(
                pieces,
                workspace.unfinished_data_bin,
                expected_tokens={split: counts[split]["tokens"] for split in SPLITS},
                dictionary=dictionary,
                workers=workers,
            )
        for file in extra:
            workspace.add(file)
        manifest = manifests.describe(
            workspace.unfinished_data_bin,
            corpus=manifests.other_name(sources[0]),
            identified_by=None,
            splits=counts,
            tokenizer=(
                SentencePiece(model).describe() if extra else {"kind": "words", "files": []}
            ),
            sources=described,
            settings=settings,
            seconds=time.time() - started,
            seed=seed,
            unit="document" if spans else "stretch of text",
        )
        workspace.publish(manifest)
    return manifest, True


def split_documents(sizes: Sequence[int], held_out: float, seed: int) -> list[str] | None:
    """The split of each document.

    Documents are drawn in an order that depends on the seed. A document that would make a held-out
    split half as large again as requested stays in training.

    Args:
        sizes: bytes of each document.
        held_out: percent of all bytes for each of validation and test.

    Returns:
        A split per document, or None if whole documents cannot be held out: there are too few, or
        they are too long.
    """
    wanted = sum(sizes) * held_out / 100
    found = ["train"] * len(sizes)
    order = sorted(range(len(sizes)), key=lambda n: hashlib.sha256(f"{seed} {n}".encode()).digest())
    for split in ("valid", "test"):
        held = 0
        for number in order:
            if held >= wanted:
                break
            if found[number] == "train" and held + sizes[number] <= 1.5 * wanted:
                found[number] = split
                held += sizes[number]
        if held < wanted / 2:
            return None
    return found


def _normalise(files: list[Path], joined: Path) -> dict:
    """All documents in one file; the bytes of each in their order."""
    sizes = []
    total = sum(file.stat().st_size for file in files)
    with atomic_write(joined, "wb") as out, progress(total, "normalising") as bar:
        for file in files:
            for name, stream in texts(file, bar.update):
                begin = out.tell()
                for line in _lines(name, stream):
                    out.write(line)
                if out.tell() > begin:
                    out.write(b"\n")
                    sizes.append(out.tell() - begin)
    if sum(sizes) < _LEAST_BYTES:
        raise BadInput(
            f"{files[0]}{' and the others' if len(files) > 1 else ''}: {sum(sizes):,} bytes of text "
            f"are too few to train and evaluate a model; at least {_LEAST_BYTES:,} are needed."
        )
    return {"documents": sizes}


def _lines(name: str, stream) -> Iterator[bytes]:
    try:
        for line in io.TextIOWrapper(stream, encoding="utf-8-sig"):
            if line := single_spaced(line):
                yield line.encode() + b"\n"
    except UnicodeDecodeError as error:
        raise not_utf8(name, error) from error


def _write_splits(
    joined: Path,
    spans: list[str] | None,
    sizes: list[int],
    held_out: float,
    plain: dict[str, Path],
) -> dict:
    if spans is None:
        # The last stretches of the text are held out, so that long contexts remain coherent.
        held = int(sum(sizes) * held_out / 100)
        spans, sizes = list(SPLITS), [sum(sizes) - 2 * held, held, held]
    with (
        open(joined, "rb") as text,
        atomic_write(plain["train"], "wb") as train,
        atomic_write(plain["valid"], "wb") as valid,
        atomic_write(plain["test"], "wb") as test,
    ):
        files = {"train": train, "valid": valid, "test": test}
        end = 0
        for split, size in zip(spans, sizes, strict=True):
            end += size
            while text.tell() < end and (line := text.readline()):
                files[split].write(line)
        written = {split: file.tell() for split, file in files.items()}
    if empty := [split for split, size in written.items() if not size]:
        raise BadInput(
            f"Nothing of the text is left for {' and '.join(empty)}, because its lines are too long; "
            "break them or give more text."
        )
    return written


def _word_dictionary(plain: dict[str, Path], dictionary: Path, entries: int | None) -> dict:
    """Write ``dict.txt`` of the training words, most frequent first, and count all splits."""
    counted = {split: Counter[str]() for split in SPLITS}
    lines = dict.fromkeys(SPLITS, 0)
    for split, path in plain.items():
        with open(path, encoding="utf-8", newline="\n") as stream:
            for line in stream:
                counted[split].update(line.split())
                lines[split] += 1
    words = Counter({w: n for w, n in counted["train"].items() if w not in _SYMBOLS})
    kept = words.most_common(entries and max(0, entries - SPECIAL))
    with atomic_write(dictionary) as out:
        out.writelines(f"{word} {count}\n" for word, count in kept)
    known = {word for word, _ in kept}
    return {
        "splits": {
            split: {
                "lines": lines[split],
                "words": counted[split].total(),
                "bytes": plain[split].stat().st_size,
                "tokens": counted[split].total() + lines[split],
                "unknown": sum(n for w, n in counted[split].items() if w not in known),
            }
            for split in SPLITS
        }
    }
