"""Documents of a split: where each starts."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

import numpy as np

from ..errors import UserInputError
from ..results.data_folder import DOCUMENTS_FILE, DataFolder

if TYPE_CHECKING:
    from .split import Split


def find_document_starts(folder: DataFolder, split: Split, boundary: str) -> list[int]:
    """Return the positions where a document starts, the first one 0.

    Args:
        folder: data folder, whose ``documents.json`` takes precedence if it names the split.
        boundary: key of :data:`.config.DOCUMENT_BOUNDARIES` that applies otherwise.

    Raises:
        UserInputError: the split has fewer than two documents, or ``documents.json`` is invalid.
    """
    listed = folder.document_starts.get(split.name)
    if listed is not None:
        # Each document starts after the one before, and in the text.
        ends = [*listed[1:], len(split.tokens)]
        if len(listed) < 2 or listed[0] != 0 or any(map(operator.ge, listed, ends)):
            raise UserInputError(
                f"'{split.name}' in '{folder.path / DOCUMENTS_FILE}' must list where at least two "
                f"documents start: increasing integers from 0, below {len(split.tokens)}. Correct "
                "or remove the file."
            )
        return listed
    starts = _title_starts(split) if boundary == "titles" else _starts_after_empty_lines(split)
    starts = np.union1d([0], starts)
    if len(starts) < 2:
        raise one_document(boundary, f"'{split.name}' in '{folder.path}'")
    return starts.tolist()


def one_document(boundary: str, text: str) -> UserInputError:
    """Return the error for a text in which ``--per-document`` finds one document."""
    return UserInputError(
        f"--per-document {boundary} finds only one document in {text}. Remove --per-document, or "
        "choose another way to separate documents. If a split has too few, hold out more of the "
        "text: --held-out of `prepare text` and `compare`."
    )


def _title_starts(split: Split) -> np.ndarray:
    """Return the positions of lines of the form ' = Title = '.

    Headings of sections, ' = = Section = = ', have two marks on either side.
    """
    if "=" not in split.dictionary:
        return np.empty(0, dtype=np.int64)
    is_mark = split.tokens == split.dictionary.index("=")
    line_ends = np.append(split.item_starts[1:], len(split.tokens))
    long_enough = line_ends - split.item_starts >= 4  # mark, title, mark, end of sentence
    first = split.item_starts[long_enough]
    last = line_ends[long_enough] - 2  # before the end-of-sentence symbol
    is_title = is_mark[first] & is_mark[last] & ~is_mark[first + 1]
    return first[is_title]


def _starts_after_empty_lines(split: Split) -> np.ndarray:
    """Return the positions of non-empty lines after an empty one or at the start of the split."""
    is_end = split.tokens == split.dictionary.eos()
    # The split starts as if after an empty line, which is two ends of sentences in a row.
    with_start = np.concatenate([[True, True], is_end])
    two_before = with_start[:-2]
    one_before = with_start[1:-1]
    return np.flatnonzero(two_before & one_before & ~is_end)
