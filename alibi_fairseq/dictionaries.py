"""A checkpoint remembers which dictionary it was trained with, by contents.

A model knows words by their number. Data that was numbered with another dictionary of the same size
loads and runs, and its perplexity is meaningless. So the fingerprint of the dictionary travels in
the ``task_state`` that fairseq saves and loads with every checkpoint.
"""

from __future__ import annotations

from .errors import BadInput
from .reporting.provenance import symbols_sha256

#: Key in the checkpoint's ``task_state``.
STATE_KEY = "dictionary_sha256"


def fingerprint(dictionary) -> str:
    """SHA-256 of the symbols of a ``fairseq.data.Dictionary``, in the order of their numbers."""
    return symbols_sha256(dictionary.symbols[dictionary.nspecial :])


def bind_dictionary(task) -> None:
    """Check the task's dictionary against the task's saved state, and have the state remember it.

    Called when a model is built: fairseq has then loaded the state of a checkpoint that is to be
    evaluated, and has not yet written that of a training run. A task without a state, as some
    programs make it around a dictionary, is left alone.
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
