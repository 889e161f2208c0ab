"""``python -m alibi_fairseq.reproduce.excerpt``: the beginnings of a corpus's splits.

What is measured on an excerpt is no measurement of the corpus. So the folder's name is the text's
name in all results, and there is no manifest that could give it another.
"""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path

from fairseq.data import Dictionary, data_utils, indexed_dataset

from ..errors import BadInput


def excerpt(source: Path, out: Path, tokens: dict[str, int]) -> None:
    """Copy the first lines of each split that there is.

    Args:
        source: a folder of fairseq's binary data.
        out: the folder to make; it appears when it is whole.
        tokens: split → the copy ends with the line that reaches so many; all there is if fewer.
    """
    dictionary = Dictionary.load(str(source / "dict.txt"))
    unfinished = out.with_name(f".{out.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    shutil.copyfile(source / "dict.txt", unfinished / "dict.txt")
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
            builder.add_item(lines[line])
            taken += len(lines[line])
        builder.finalize(f"{prefix}.idx")
    shutil.rmtree(out, ignore_errors=True)
    os.replace(unfinished, out)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m alibi_fairseq.reproduce.excerpt")
    parser.add_argument("source", type=Path, metavar="DATA", help="folder of binary data")
    parser.add_argument("out", type=Path, metavar="OUT", help="folder to make")
    parser.add_argument("tokens", nargs="+", metavar="SPLIT=TOKENS", help="e.g. valid=4096")
    args = parser.parse_args()
    if not (args.source / "dict.txt").is_file():
        raise BadInput(f"There is no prepared data in {args.source} (no dict.txt).")
    pairs = (text.partition("=") for text in args.tokens)
    excerpt(args.source, args.out, {split: int(most) for split, _, most in pairs})


if __name__ == "__main__":
    main()
