"""Binary data and texts cut short; also ``python -m alibi_fairseq.data.excerpt``.

Results on an excerpt are not results on the corpus. So its folder's name is the text's name in all
results, and there is no manifest that could give it another.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from fairseq.data import Dictionary, data_utils, indexed_dataset
from torch import Tensor

from .sources import text_files, texts

#: What is kept of a split: its lines, and the dictionary → some of the lines.
Choice = Callable[[Sequence[Tensor], Dictionary], Iterable[Tensor]]


def excerpt(source: Path, out: Path, splits: dict[str, Choice], words: int | None = None) -> None:
    """Copy some of the lines of each split that exists.

    Args:
        source: a folder of fairseq's binary data.
        out: the folder to create; it appears when it is complete.
        splits: split → what is kept of it.
        words: dictionary entries to keep, the most frequent ones; the others become ``<unk>``, as
            with ``fairseq-preprocess --nwordssrc``.
    """
    with open(source / "dict.txt", encoding="utf-8") as stream:
        entries = list(itertools.islice(stream, words))  # the most frequent first
    with unfinished(out) as folder:
        (folder / "dict.txt").write_text("".join(entries), encoding="utf-8")
        dictionary = Dictionary.load(str(folder / "dict.txt"))
        for split, choose in splits.items():
            lines = data_utils.load_indexed_dataset(str(source / split), dictionary)
            if lines is None:
                continue
            prefix = str(folder / split)
            builder = indexed_dataset.make_builder(
                f"{prefix}.bin", impl="mmap", vocab_size=len(dictionary)
            )
            for line in choose(lines, dictionary):
                ids = line.clone()
                ids[ids >= len(dictionary)] = dictionary.unk()
                builder.add_item(ids)
            builder.finalize(f"{prefix}.idx")


def first(tokens: int) -> Choice:
    """The first lines of a split, to the one that reaches this number of tokens."""
    return lambda lines, _: until(lines, range(len(lines)), tokens)


def until(lines: Sequence[Tensor], numbers: range, tokens: int) -> Iterator[Tensor]:
    """The lines with these numbers, to the one that reaches this number of tokens."""
    taken = 0
    for number in numbers:
        if taken >= tokens:
            return
        line = lines[number]
        taken += len(line)
        yield line


def sample(source: Path, out: Path, most: int) -> Path:
    """Copy whole documents, drawn by their contents, until there are that many bytes.

    Returns:
        ``out``, a folder with a file per document.
    """
    if out.is_dir():
        return out
    found = []
    for file in text_files(source):
        for _, stream in texts(file):
            content = stream.read()
            found.append((hashlib.sha256(content).hexdigest(), content))
    with unfinished(out) as folder:
        taken = 0
        for digest, content in sorted(found):
            if taken >= most:
                break
            (folder / f"{digest[:16]}.txt").write_bytes(content)
            taken += len(content)
    return out


@contextmanager
def unfinished(out: Path) -> Iterator[Path]:
    """A folder that takes the place of ``out`` when it is complete."""
    folder = out.with_name(f".{out.name}.unfinished")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    yield folder
    shutil.rmtree(out, ignore_errors=True)
    os.replace(folder, out)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m alibi_fairseq.data.excerpt")
    parser.add_argument("source", type=Path, metavar="DATA", help="folder of binary data")
    parser.add_argument("out", type=Path, metavar="OUT", help="folder to make")
    parser.add_argument("tokens", nargs="+", metavar="SPLIT=TOKENS", help="e.g. valid=4096")
    parser.add_argument("--words", type=int, help="dictionary entries to keep (default: all)")
    args = parser.parse_args()
    pairs = (text.partition("=") for text in args.tokens)
    splits = {split: first(int(most)) for split, _, most in pairs}
    excerpt(args.source, args.out, splits, args.words)


if __name__ == "__main__":
    main()
