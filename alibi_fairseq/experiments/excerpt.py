"""``python -m alibi_fairseq.experiments.excerpt``: the beginning of each split, and its frequent words.

Results on an excerpt are not results on the corpus. So its folder's name is the text's name in all
results, and there is no manifest that could give it another.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
from pathlib import Path

from fairseq.data import Dictionary, data_utils, indexed_dataset

from ..errors import BadInput


def excerpt(source: Path, out: Path, tokens: dict[str, int], words: int | None = None) -> None:
    """Copy the first lines of each split that exists.

    Args:
        source: a folder of fairseq's binary data.
        out: the folder to create; it appears when it is complete.
        tokens: split → the copy ends with the line that reaches this number, or with the split.
        words: dictionary entries to keep, the most frequent ones; the others become ``<unk>``, as
            with ``fairseq-preprocess --nwordssrc``.
    """
    with open(source / "dict.txt", encoding="utf-8") as stream:
        entries = list(itertools.islice(stream, words))  # the most frequent first
    unfinished = out.with_name(f".{out.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    (unfinished / "dict.txt").write_text("".join(entries), encoding="utf-8")
    dictionary = Dictionary.load(str(unfinished / "dict.txt"))
    for split, most in tokens.items():
        lines = data_utils.load_indexed_dataset(str(source / split), dictionary)
        if lines is None:
            continue
        prefix = str(unfinished / split)
        builder = indexed_dataset.make_builder(
            f"{prefix}.bin", impl="mmap", vocab_size=len(dictionary)
        )
        taken = 0
        for line in range(len(lines)):
            if taken >= most:
                break
            ids = lines[line].clone()
            ids[ids >= len(dictionary)] = dictionary.unk()
            builder.add_item(ids)
            taken += len(ids)
        builder.finalize(f"{prefix}.idx")
    shutil.rmtree(out, ignore_errors=True)
    os.replace(unfinished, out)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m alibi_fairseq.experiments.excerpt")
    parser.add_argument("source", type=Path, metavar="DATA", help="folder of binary data")
    parser.add_argument("out", type=Path, metavar="OUT", help="folder to make")
    parser.add_argument("tokens", nargs="+", metavar="SPLIT=TOKENS", help="e.g. valid=4096")
    parser.add_argument("--words", type=int, help="dictionary entries to keep (default: all)")
    args = parser.parse_args()
    if not (args.source / "dict.txt").is_file():
        raise BadInput(f"There is no prepared data in {args.source} (no dict.txt).")
    pairs = (text.partition("=") for text in args.tokens)
    excerpt(args.source, args.out, {split: int(most) for split, _, most in pairs}, args.words)


if __name__ == "__main__":
    main()
