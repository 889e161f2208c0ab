"""Small texts in the layouts of the three corpora."""

from __future__ import annotations

import random
import tarfile
import zipfile
from pathlib import Path

from fairseq.data import Dictionary, data_utils
from tokenizers.implementations import ByteLevelBPETokenizer

from alibi_fairseq.data.tokenization import SPECIAL, ByteLevelBpe

COMMON = "the of and to in a is that it was for on are as with his they at be this from I"


def sentences(seed: int, count: int) -> list[str]:
    """Return random sentences. Sentences of different seeds share almost no 8-grams."""
    rng = random.Random(seed)
    words = COMMON.split() + [f"w{seed}x{n}" for n in range(30)]
    return [" ".join(rng.choices(words, k=rng.randint(4, 20))) for _ in range(count)]


def wikitext_files(folder: Path) -> dict[str, Path]:
    """Write ``wiki.{train,valid,test}.tokens`` with unusual lines and characters."""
    folder.mkdir(parents=True)
    paths = {}
    for number, (split, count) in enumerate((("train", 400), ("valid", 20), ("test", 30))):
        text = [f" {s} @-@ <unk> € . " for s in sentences(number, count)]
        lines = [" ", " = Title = ", " ", *text]
        paths[split] = folder / f"wiki.{split}.tokens"
        paths[split].write_text("\n".join(lines) + "\n", encoding="utf-8")
    return paths


def wikitext_zip(path: Path, folder: Path) -> Path:
    """Write the files of :func:`wikitext_files` to an archive like the official one."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in wikitext_files(folder).values():
            archive.write(file, f"wikitext-103/{file.name}")
    return path


def books(folder: Path, count: int = 12) -> Path:
    """Write books of different sentences."""
    folder.mkdir(parents=True)
    texts = [sentences(100 + n, 60) for n in range(count)]
    for number, lines in enumerate(texts):
        text = "“Quoted”  – text…\n\n" + "\n".join(lines) + "\n"
        (folder / f"book{number:02d}.txt").write_text(text, encoding="utf-8")
    return folder


def tarred(folder: Path, path: Path) -> Path:
    """Write a folder to an archive."""
    compression = path.suffix.removeprefix(".").removeprefix("tar")
    with tarfile.open(path, f"w:{compression}") as archive:
        archive.add(folder, folder.name)
    return path


def documents_file(path: Path, count: int = 300) -> Path:
    """Write documents of one to nine lines, separated by empty lines."""
    rng = random.Random(5)
    lines = sentences(7, 9 * count)
    with open(path, "w", encoding="utf-8") as out:
        for _ in range(count):
            for _ in range(rng.randint(1, 9)):
                out.write(lines.pop() + "\n")
            out.write("\n")
    return path


def stored(data_bin: Path, split: str) -> tuple[list[str], list[int]]:
    """Read the lines of a split and the number of tokens per line with fairseq."""
    dictionary = Dictionary.load(str(data_bin / "dict.txt"))
    items = data_utils.load_indexed_dataset(str(data_bin / split), dictionary)
    return [dictionary.string(item) for item in items], items.sizes.tolist()


def train_byte_level_bpe(lines: list[str], folder: Path, entries: int) -> ByteLevelBpe:
    """Train a tokenizer in GPT-2's two files with a number of dictionary entries."""
    model = ByteLevelBPETokenizer()
    model.train_from_iterator(lines, vocab_size=entries - SPECIAL, show_progress=False)
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary, merges = model.save_model(str(folder))
    return ByteLevelBpe(
        Path(vocabulary).rename(folder / "encoder.json"),
        Path(merges).rename(folder / "vocab.bpe"),
    )
