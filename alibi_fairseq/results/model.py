"""Model of a result: the fields that identify it, and those that name its run."""

from __future__ import annotations

import json
import re
from pathlib import PurePath
from typing import Annotated, Any

from pydantic import BeforeValidator, TypeAdapter

from ..positions.spec import MethodSpec
from .json_types import NonEmptyStr, NonNegativeInt, PositiveCount, Sha256, StrictObject

#: Checkpoint with the lowest validation loss of a run.
BEST_CHECKPOINT = "checkpoint_best.pt"
#: Options that determine the tokens per update.
BATCH_OPTIONS = {
    "batch_size",
    "distributed_world_size",
    "max_sentences",
    "max_tokens",
    "required_batch_size_multiple",
    "update_freq",
}
#: Options with which the same training can resume: where its data is, when it ends, and how often
#: it is saved.
OPTIONS_OF_A_SESSION = {"data", "max_update", "save_interval_updates", "validate_interval_updates"}


_METHOD_TYPE = TypeAdapter(MethodSpec)


def _read_method(content: object) -> MethodSpec:
    """Return the position method that JSON describes, which strict validation would reject."""
    return _METHOD_TYPE.validate_python(content)


class Model(StrictObject):
    """Evaluated model. None means unknown.

    Attributes:
        method: position methods of the layers, with their options and attention windows.
        plugin_sha256: hash of the code that defines a plugin's method; None for a method of this
            package.
        architecture: registered name of the architecture.
        train_length: training length in tokens.
        parameters: number of parameters; shared ones count once.
        options: further options of the training that determine the model, as text, by the name of
            their field; options of the method are part of ``method``. The text of a flag is empty.
        seed: seed of the training.
        updates: update count of the checkpoint.
        checkpoint: path of the checkpoint when it was evaluated.
        checkpoint_sha256: hash of the checkpoint, or of all parts of a Hugging Face folder.
        precision: precision of weights and activations.
        overrides: options changed for the evaluation.
        memory_length: past states per layer that the model attends to.
        label: name of a set of overrides.
    """

    method: Annotated[MethodSpec, BeforeValidator(_read_method)]
    plugin_sha256: Sha256 | None = None
    architecture: NonEmptyStr | None = None
    train_length: PositiveCount
    layers: PositiveCount | None = None
    width: PositiveCount | None = None
    parameters: PositiveCount | None = None
    vocabulary: PositiveCount | None = None
    options: dict[str, str] | None = None
    seed: NonNegativeInt | None = None
    updates: NonNegativeInt | None = None
    checkpoint: NonEmptyStr | None = None
    checkpoint_sha256: Sha256 | None = None
    config_sha256: Sha256 | None = None
    weights_sha256: Sha256 | None = None
    tokenizer_sha256: Sha256 | None = None
    precision: NonEmptyStr | None = None
    overrides: dict[str, Any] | None = None
    memory_length: PositiveCount | None = None
    label: NonEmptyStr | None = None

    @property
    def method_name(self) -> str:
        """Name of the position method in tables."""
        return self.method.label

    @property
    def key(self) -> tuple:
        """Identity of the model, which its seeds share.

        Seeds reach their lowest validation loss after different numbers of updates.
        """
        return (
            self.method,
            *self.training_key,
            None if self.is_best_checkpoint else self.updates,
            self.precision,
            self.overrides_text,
            self.memory_length,
            self.label,
        )

    @property
    def training_key(self) -> tuple:
        """Identity of the model as trained, which its seeds and variants share.

        An evaluation may override options of the method, so only the names are part of it.
        """
        options = None if self.options is None else tuple(sorted(self.options.items()))
        return (
            self.method.names,
            self.plugin_sha256,
            self.train_length,
            self.architecture,
            self.parameters,
            self.layers,
            self.width,
            self.vocabulary,
            options,
        )

    @property
    def checkpoint_key(self) -> tuple:
        """Identity of the checkpoint among checkpoints of equal models.

        A known hash identifies it together with the file name, wherever its folder is.
        """
        updates = self.updates if self.is_best_checkpoint else None
        if self.checkpoint_sha256 is None:
            return (self.checkpoint, self.seed, updates)
        return (self.checkpoint_name, self.checkpoint_sha256, updates)

    @property
    def checkpoint_name(self) -> str | None:
        """File name of the checkpoint."""
        return None if self.checkpoint is None else PurePath(self.checkpoint).name

    @property
    def is_best_checkpoint(self) -> bool:
        """True if the checkpoint is the one with the lowest validation loss of its run."""
        return self.checkpoint_name == BEST_CHECKPOINT

    @property
    def overrides_text(self) -> str | None:
        """Overridden options as JSON, or None."""
        return json.dumps(self.overrides, sort_keys=True) if self.overrides else None

    @property
    def tokens_per_update(self) -> int | None:
        """Requested tokens per update. The last update of an epoch may have fewer.

        It is None for samples that end with a line or a document and are shorter for this reason.
        """
        values = self.options or {}
        if values.get("sample_break_mode", "none") != "none":
            return None
        processes = _whole_number(values.get("distributed_world_size", ""))
        batches = _whole_number(values.get("update_freq", "1"))
        multiple = _whole_number(values.get("required_batch_size_multiple", "8"))  # default
        limits = []
        max_tokens = _whole_number(values.get("max_tokens", ""))
        if max_tokens:
            limits.append(max_tokens // self.train_length)
        for option in ("batch_size", "max_sentences"):
            sequences = _whole_number(values.get(option, ""))
            if sequences:
                limits.append(sequences)
        if not (processes and batches and multiple and limits):
            return None
        sequences = min(limits)
        if sequences > multiple:
            sequences -= sequences % multiple
        return processes * batches * sequences * self.train_length


def _whole_number(text: str) -> int | None:
    """Return the number of an option, which Hydra may write as a list; None for anything else."""
    match = re.fullmatch(r"\[?(\d+)\]?", text)
    return int(match[1]) if match else None
