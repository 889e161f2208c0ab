"""Results files of version 3, in which each record describes its model: their fields, and reading.

:mod:`.upgrade` turns them into results of today. Benchmarks are still files of version 3.
"""

from __future__ import annotations

import os
from pathlib import PurePath
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, TypeAdapter

from ..errors import UserInputError
from ..files import read_json
from ..positions.spec import MethodSpec
from .benchmark import SCHEMA, VERSION, BenchmarkFile
from .file_names import BEST_CHECKPOINT
from .json_types import (
    Bits,
    Fraction,
    NonEmptyStr,
    NonNegativeInt,
    NotNegative,
    Positive,
    PositiveCount,
    Sha256,
    StrictObject,
    TotalBits,
    parse_json,
)
from .provenance import Provenance

_METHOD_TYPE = TypeAdapter(MethodSpec)


def _read_method(content: object) -> MethodSpec:
    """Return the position method that JSON describes, which strict validation would reject."""
    return _METHOD_TYPE.validate_python(content)


class TextSummary(StrictObject):
    """Summary of the training data: tokenizer, size of the dictionary, and size of the split."""

    tokenizer: NonEmptyStr | None
    vocabulary: NonNegativeInt | None
    train_tokens: NonNegativeInt | None
    train_bytes: NonNegativeInt | None = None


class Model(StrictObject):
    """Evaluated model. None means unknown.

    Attributes:
        method: position methods of the layers, with their options and attention windows.
        plugin_sha256: hash of the code that defines a plugin's method; None for a method of this
            package.
        architecture: registered name of the architecture.
        train_length: training length in tokens.
        parameters: number of parameters; shared ones count once.
        options: more options of the training that determine the model, as text, by the name of
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
    def is_best_checkpoint(self) -> bool:
        """True if the checkpoint is the one with the lowest validation loss of its run."""
        return PurePath(self.checkpoint or "").name == BEST_CHECKPOINT


class ModelRecord(StrictObject):
    """Record of one model."""

    model: Model


class Measurement(ModelRecord):
    """Loss of one model on one split at one length and stride.

    Attributes:
        corpus: name of the text.
        text: tokenizer and sizes of the data.
        data_sha256: hash of the evaluated splits, or of the text file.
        split_sha256: hash of the split, if several were evaluated together.
        stride: tokens scored per window.
        tokens: number of scored tokens.
        loss_bits: mean of −log₂ p over the scored tokens.
        words, bytes: size of the scored text, newlines included.
        unigram_bits: entropy of the token frequencies of the split.
        tokens_sha256: hash of the token IDs of a raw text.
        documents: document boundaries.
        documents_sha256: hash of the positions where documents begin.
        score_from, score_to: scored range of the split, or of each document.
        document_tokens, document_bits: number of tokens and total loss of each document.
        position_ends: last position of each bucket of the loss by position.
        position_tokens, position_bits: number of tokens and total loss of each bucket.
        position_errors: standard error of the mean loss of each bucket over windows, in bits per
            token; None for a bucket of one window.
        longest_window: tokens of the longest window.
        min_context, mean_context: context of the scored tokens.
        seconds: duration of the forward passes.
        tokens_per_second_batch_1: speed at one window at a time.
    """

    corpus: NonEmptyStr | None = None
    text: TextSummary | None = None
    data_sha256: Sha256 | None = None
    split_sha256: Sha256 | None = None
    subset: str
    length: PositiveCount
    stride: PositiveCount
    tokens: PositiveCount | None = None
    loss_bits: Bits | None = None
    words: PositiveCount | None = None
    bytes: PositiveCount | None = None
    unigram_bits: Bits | None = None
    tokens_sha256: Sha256 | None = None
    documents: NonEmptyStr | None = None
    documents_sha256: Sha256 | None = None
    score_from: NonNegativeInt | None = None
    score_to: NonNegativeInt | None = None
    document_tokens: list[NonNegativeInt] = []
    document_bits: list[TotalBits] = []
    position_ends: list[PositiveCount] = []
    position_tokens: list[NonNegativeInt] = []
    position_bits: list[TotalBits] = []
    position_errors: list[NotNegative | None] = []
    longest_window: PositiveCount | None = None
    min_context: NonNegativeInt | None = None
    mean_context: NotNegative | None = None
    windows_per_batch: PositiveCount | None = None
    device: NonEmptyStr | None = None
    seconds: NotNegative | None = None
    tokens_per_second: Positive | None = None
    tokens_per_second_batch_1: Positive | None = None
    peak_memory_mb: Positive | None = None


class ProbeMeasurement(ModelRecord):
    """Accuracy of one model on the sequences of a probe of one length and depth.

    Attributes:
        corpus: name of the probe.
        data_sha256: hash of the training data of the probe.
        depth: depth of the repeated block.
        gap: number of fillers between the two blocks.
        trials: number of sequences.
        chance: accuracy of guessing.
    """

    corpus: NonEmptyStr | None = None
    data_sha256: Sha256 | None = None
    length: PositiveCount
    depth: Fraction
    gap: NonNegativeInt
    trials: PositiveCount
    accuracy: Fraction
    chance: Fraction
    device: NonEmptyStr | None = None

    subset: ClassVar[str] = ""  # the sequences are drawn for the evaluation


class Validation(ModelRecord):
    """Validation of a model during its training. Times and speeds count from its start.

    Attributes:
        model: the model, with the update count of the validation.
        length: tokens per sample.
        tokens: number of tokens of the split.
        loss_bits: None if the loss, or its perplexity, was not finite.
        trained_tokens: tokens trained on in all processes.
        hours, gpu_hours: duration with validation and saving; the same times the number of GPUs.
        tokens_per_second: speed of the updates alone, in all processes.
        tokens_per_second_per_process: the same per process, whose number may have changed.
    """

    subset: NonEmptyStr
    length: PositiveCount | None = None
    tokens: PositiveCount | None = None
    loss_bits: Bits | None = None
    trained_tokens: NonNegativeInt | None = None
    hours: NotNegative | None = None
    gpu_hours: NotNegative | None = None
    peak_memory_mb: NotNegative | None = None
    tokens_per_second: Positive | None = None
    tokens_per_second_per_process: Positive | None = None
    processes: PositiveCount | None = None
    device: NonEmptyStr | None = None


class ResultsFile(StrictObject):
    """Content of a results file.

    Attributes:
        kind: kind of its records.
        corpus: name of the text.
    """

    kind: ClassVar[str]

    corpus: NonEmptyStr
    provenance: Provenance
    records: list[Any]


class EvaluationFile(ResultsFile):
    """Results of an evaluation on a text."""

    kind = "evaluation"
    records: list[Measurement]


class ProbeFile(ResultsFile):
    """Results of an evaluation on a probe."""

    kind = "probe"
    records: list[ProbeMeasurement]


class TrainingFile(ResultsFile):
    """Record of a training, in its save folder."""

    kind = "training"
    records: list[Validation]


FILE_CLASSES: dict[str, type[ResultsFile | BenchmarkFile]] = {
    "evaluation": EvaluationFile,
    "probe": ProbeFile,
    "training": TrainingFile,
    "benchmark": BenchmarkFile,
}


def load_results_file(path: str | os.PathLike) -> ResultsFile | BenchmarkFile:
    """Read a results file of any kind; see :func:`read_json`.

    Raises:
        UserInputError: naming the first key that is wrong, or the file is another JSON file, such
            as the settings of a run.
    """
    content = read_json(path)
    header = content if isinstance(content, dict) else {}
    kind = header.get("kind")
    identity = (header.get("schema"), header.get("version"))
    if identity != (SCHEMA, VERSION) or kind not in FILE_CLASSES:
        raise UserInputError(
            f"{path} is not a results file of version {VERSION}. Pass results files, such as the "
            "results.json of a comparison, or folders that contain no other *.json files."
        )
    fields = {key: content[key] for key in content if key not in ("schema", "version", "kind")}
    return parse_json(FILE_CLASSES[kind], fields, str(path))
