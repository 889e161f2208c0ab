"""Identity of models, runs, and measurements: the keys of a result record that distinguish them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from pathlib import PurePath
from typing import Any

from .training_command import model_options

#: Checkpoint with the lowest validation loss of a run.
BEST_CHECKPOINT = "checkpoint_best.pt"


class Role(Enum):
    """Role of a key in the identity of a result record."""

    MODEL = "the model as evaluated, with any seed"
    RUN = "one training of the model"
    MEASUREMENT = "one measurement of a model"


#: Keys of a result record by what they identify. All other keys are outcomes.
KEYS = {
    Role.MODEL: (
        "position_method",
        "train_length",
        "plugin_sha256",
        "model",
        "updates",
        "precision",
        "model_overrides",
        "label",
        "lr",
        "memory_length",
        "train_command",
        "parameters",
        "layers",
        "width",
        "vocabulary",
    ),
    Role.RUN: ("checkpoint", "checkpoint_sha256", "seed"),
    Role.MEASUREMENT: (
        "length",
        "stride",
        "subset",
        "corpus",
        "documents",
        "score_from",
        "score_to",
        "tokens",
        "tokens_sha256",
        "depth",
    ),
}
#: Outcomes of an evaluation and of a probe.
_OUTCOMES = ("loss_bits", "accuracy")
#: Keys that identify a measurement of a benchmark: the function, its model, and its input.
_BENCHMARK_KEYS = (
    "name",
    "variant",
    "baseline",
    "phase",
    "position_method",
    "model",
    "weights",
    "vocabulary",
    "heads",
    "head_size",
    "layers",
    "attention_dropout",
    "train_length",
    "length",
    "stride",
    "tokens",
    "prompt",
    "new_tokens",
    "batch",
    "passes",
    "threads",
    "train_command",
)


def identity(facts: Mapping[str, Any], *roles: Role) -> tuple:
    """Return the (key, value) pairs that identify a model, a run, or a measurement.

    Every comparison of results uses it. Two records measure the same thing if they agree in all
    roles, and two models differ at most in their seed if they agree in ``Role.MODEL``.

    - Unknown values are left out.
    - A training command is reduced to the options that determine the model.
    - ``documents`` is left out unless a range of each document is scored.
    - The update count identifies the model, except for ``checkpoint_best.pt``. Seeds reach their
      lowest validation loss after different numbers of updates, so it identifies the run there.
    - A known hash of the checkpoint identifies the run together with the file name. Its path, which
      can be written in several ways, and its seed are then left out.

    Args:
        facts: result record, or attributes of a measurement. The seed and precision of its results
            file identify it only if they are among the facts.
        roles: roles of the keys (default: all).
    """
    roles = roles or tuple(Role)
    values = {}
    for role in roles:
        for key in KEYS[role]:
            values[key] = facts.get(key)
    if values.get("train_command"):
        values["train_command"] = model_options(facts["train_command"])
    if is_best_checkpoint(facts.get("checkpoint")):
        values.pop("updates", None)
        if Role.RUN in roles:
            values["updates"] = facts.get("updates")
    if values.get("checkpoint_sha256"):
        values.pop("seed")
        if values["checkpoint"]:
            values["checkpoint"] = PurePath(values["checkpoint"]).name
    if facts.get("score_from") is None and facts.get("score_to") is None:
        values.pop("documents", None)
    return tuple((key, value) for key, value in values.items() if value is not None)


def is_best_checkpoint(checkpoint: str | None) -> bool:
    """Return True if a checkpoint is the one with the lowest validation loss of its run."""
    return checkpoint is not None and PurePath(checkpoint).name == BEST_CHECKPOINT


def names_file(recorded: str | None, checkpoint: PurePath) -> bool:
    """Return True if a recorded path has the file name of a checkpoint.

    The folder may have been moved, or written in another way, since the measurement. The file name
    distinguishes copies in one folder, such as ``checkpoint_best.pt``.
    """
    return recorded is not None and PurePath(recorded).name == checkpoint.name


def is_copy(record: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return True if records of one measurement differ in the checkpoint's path, not the outcome.

    One checkpoint has several paths if it was evaluated before and after its folder was moved.

    Args:
        record: result record.
        other: result record with the same :func:`record_identity`.
    """
    has_other_path = record.get("checkpoint") != other.get("checkpoint")
    return has_other_path and all(record.get(key) == other.get(key) for key in _OUTCOMES)


def record_identity(kind: str, record: dict) -> tuple:
    """Return the pairs that distinguish a result record from the others of its results file."""
    if kind != "benchmark":
        return identity(record)
    return tuple((key, record.get(key)) for key in _BENCHMARK_KEYS)
