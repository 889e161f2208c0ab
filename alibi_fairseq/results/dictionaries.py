"""Dictionaries by content: the hash of one, and which one a checkpoint was trained with.

A model knows words by their index. Data binarised with another dictionary of the same size loads
and runs, and its perplexity is meaningless. The hash of the training dictionary is therefore kept
in the ``task_state`` that fairseq saves and loads with every checkpoint.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from alibi_fairseq.errors import BadInput

#: Key in the checkpoint's ``task_state``.
STATE_KEY = "dictionary_sha256"

_OVERWRITE_FLAG = "#fairseq:overwrite"


def symbols_sha256(symbols: Iterable[str]) -> str:
    """SHA-256 of a dictionary's own symbols in order, without fairseq's special ones.

    Counts do not enter: two dictionaries with the same hash give every symbol the same index.
    """
    return hashlib.sha256("\n".join(symbols).encode()).hexdigest()


def fingerprint(dictionary) -> str:
    """:func:`symbols_sha256` of a ``fairseq.data.Dictionary``."""
    return symbols_sha256(dictionary.symbols[dictionary.nspecial :])


def dictionary_sha256(data: str | os.PathLike) -> str:
    """:func:`symbols_sha256` of ``dict.txt`` in a fairseq data folder, or of that file itself.

    Raises:
        BadInput: the dictionary is missing or is not UTF-8 text.
    """
    path = Path(data) if Path(data).is_file() else data_folders(data)[0] / "dict.txt"
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except FileNotFoundError as error:
        raise BadInput(f"{path}: no dictionary there; run fairseq-preprocess first.") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: not a dictionary (not UTF-8 text).") from error
    return symbols_sha256(_symbol(line) for line in lines if line.strip())


def data_folders(data: str | os.PathLike) -> list[Path]:
    """The folders of fairseq's data argument, which joins several by ``:``."""
    return [Path(folder) for folder in os.fspath(data).split(":") if folder]


def _symbol(line: str) -> str:
    """The symbol of a line ``symbol count [#fairseq:overwrite]``; symbols may hold spaces."""
    line = line.rstrip()
    if line.endswith(" " + _OVERWRITE_FLAG):
        line = line[: -len(_OVERWRITE_FLAG) - 1]
    return line.rsplit(" ", 1)[0]


def bind_dictionary(task) -> None:
    """Check the task's dictionary against the checkpoint's, and record it in the task's state.

    Called when a model is built: by then fairseq has loaded the state of a checkpoint that is to
    be evaluated, and has not yet saved that of a training run. A task without state, such as one
    made by hand around a dictionary, is left alone.

    Raises:
        BadInput: the checkpoint was trained with another dictionary.
    """
    state = getattr(task, "state", None)
    if state is None:
        return
    ours = fingerprint(task.source_dictionary)
    trained_with = state.state_dict.get(STATE_KEY, ours)
    if trained_with != ours:
        raise BadInput(
            "The data's dictionary is not the one this checkpoint was trained with (their contents "
            f"differ, SHA-256 {ours[:12]}… and {trained_with[:12]}…), so its word numbers mean "
            "other words; preprocess the text with the dict.txt of the training data "
            "(fairseq-preprocess --srcdict)."
        )
    state.merge_state_dict({STATE_KEY: ours})
