"""Where documents begin in a binarised text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

#: ``titles``: lines of the form " = Title = ", as in WikiText; ``empty-lines``: an empty line ends a
#: document, as in texts that ``alibi-fairseq prepare text`` made.
KINDS = ("titles", "empty-lines")


def documents(lines: Sequence, dictionary, kind: str) -> Iterator[range]:
    """The lines of each document, without what stands before the first one.

    Args:
        lines: 1-D tensors that end with the end-of-sentence symbol.
        dictionary: a ``fairseq.data.Dictionary``.
        kind: one of ``KINDS``.
    """
    begin: int | None = None  # None between documents
    for number in range(len(lines)):
        line = lines[number].tolist()
        empty, title = len(line) == 1, kind == "titles" and _is_title(line, dictionary)
        ends = empty if kind == "empty-lines" else title
        if ends and begin is not None:
            yield range(begin, number)
            begin = None
        if begin is None and (title if kind == "titles" else not empty):
            begin = number
    if begin is not None:
        yield range(begin, len(lines))


def _is_title(line: list[int], dictionary) -> bool:
    mark = dictionary.index("=")
    # " = = Section = = " has two marks.
    return len(line) >= 4 and line[0] == line[-2] == mark and line[1] != mark
