"""Text to tokenised text, over several processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from alibi_fairseq.dataprep.parallel import map_in_order
from alibi_fairseq.dataprep.progress import progress
from alibi_fairseq.dataprep.text import TextCounts, not_utf8
from alibi_fairseq.dataprep.tokenisers import Tokeniser
from alibi_fairseq.files import atomic_write

_BLOCK = 1 << 21  # bytes of text given to a process at a time

_tokeniser: Tokeniser  # of this process


def encode_file(
    source: str | os.PathLike,
    destination: str | os.PathLike,
    load: Callable[..., Tokeniser],
    arguments: tuple,
    workers: int = 1,
) -> dict:
    """Tokenise a file line by line; ``destination`` appears when it is complete.

    Args:
        source: UTF-8 text, normalised (single spaces).
        destination: the pieces of each line separated by spaces; an unknown one is ``<unk>``.
        load: creates the tokeniser in each process, e.g. ``SentencePiece``.
        arguments: for ``load``, e.g. the model's path.

    Returns:
        ``lines``, ``words`` and ``bytes`` of the source as in :class:`TextCounts`; ``tokens``
        with one ``</s>`` per line, as fairseq-preprocess makes of it; ``unknown`` among them.

    Raises:
        BadInput: the source is not UTF-8.
    """
    total, tokens, unknown = TextCounts(), 0, 0
    size = Path(source).stat().st_size
    with atomic_write(destination) as out, progress(size, f"tokenising {Path(source).stem}") as bar:
        for block, counts, pieces, missing in map_in_order(
            _encode_block, _blocks(source), workers, _load, (load, arguments)
        ):
            out.write(block)
            total += counts
            tokens += pieces + counts.lines
            unknown += missing
            bar.update(counts.bytes)
    return {**total.as_dict(), "tokens": tokens, "unknown": unknown}


def _blocks(source: str | os.PathLike) -> Iterator[str]:
    try:
        with open(source, encoding="utf-8") as stream:
            while lines := stream.readlines(_BLOCK):
                yield "".join(lines)
    except UnicodeDecodeError as error:
        raise not_utf8(source, error) from error


def _load(load: Callable[..., Tokeniser], arguments: tuple) -> None:
    global _tokeniser
    _tokeniser = load(*arguments)


def _encode_block(block: str) -> tuple[str, TextCounts, int, int]:
    lines = block.split("\n")
    if lines[-1] == "":
        lines.pop()
    names = _tokeniser.names
    encoded = _tokeniser.encode(lines)
    counts = TextCounts(
        lines=len(lines),
        words=sum(len(line.split()) for line in lines),
        bytes=len(block.encode()),
    )
    pieces = sum(map(len, encoded))
    # Number 0 is the unknown piece of those tokenisers that have one outside of their dictionary.
    unknown = sum(ids.count(0) for ids in encoded) if _tokeniser.offset == 3 else 0
    text = "".join(" ".join(map(names.__getitem__, ids)) + "\n" for ids in encoded)
    return text, counts, pieces, unknown
