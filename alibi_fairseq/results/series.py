"""Series and reading: how a model was trained, and which of its weights are read and how.

Together they identify a row of a table or a line of a figure.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, TypeAdapter, ValidationError

from ..errors import UserInputError, describe_invalid
from ..positions.spec import MethodSpec
from .irrelevant import IRRELEVANT
from .json_types import (
    STORED,
    NonEmptyStr,
    NonNegativeInt,
    PositiveCount,
    Sha256,
)
from .settings import Settings, applicable_defaults, canonical, plain

#: Key in a checkpoint's ``extra_state`` with the series of its training.
SERIES_KEY = "series"

_METHOD_TYPE = TypeAdapter(MethodSpec)


def _check_method(settings: Settings) -> Settings:
    """Check that settings from a file have a position method."""
    try:
        _METHOD_TYPE.validate_python(settings.get("method"))
    except ValidationError as error:
        raise ValueError("must have a position method") from error
    return settings


SettingsOfModel = Annotated[Settings, AfterValidator(_check_method)]


@dataclass(frozen=True)
class Facts:
    """Properties of a model that follow from its settings, for tables. None means unknown.

    Attributes:
        architecture: registered name of the architecture; for a Hugging Face model, its class.
        parameters: number of parameters; shared ones count once.
        layers: number of layers.
        width: size of a token's embedding in the layers.
        vocabulary: size of the dictionary.
        memory_length: past states per layer that the model attends to.
    """

    __pydantic_config__ = STORED

    architecture: NonEmptyStr | None = None
    parameters: PositiveCount | None = None
    layers: PositiveCount | None = None
    width: PositiveCount | None = None
    vocabulary: PositiveCount | None = None
    memory_length: PositiveCount | None = None


@dataclass(frozen=True)
class Stage:
    """Settings of a training until it was resumed with different ones.

    Attributes:
        until: update count at which it was resumed.
        settings: settings until then.
    """

    __pydantic_config__ = STORED

    until: PositiveCount
    settings: SettingsOfModel = field(hash=False)


@dataclass(frozen=True, eq=False)
class Series:
    """How a model was trained, which its seeds share.

    Two series are equal if the same settings count in both.

    Attributes:
        settings: every setting that isn't a default: fairseq's options as ``group.field``, the
            position ``method``, the number of ``processes``, and the hashes of data, dictionary,
            and plugin; for a model whose training is unknown, the hash of its ``weights``. Paths
            and the seed aren't settings.
        history: earlier settings, if the training was resumed with different ones.
        start: SHA-256 of the checkpoint from whose weights the run started.
        facts: properties for tables, which aren't compared.
        label: name that you gave the model, which isn't compared.
    """

    __pydantic_config__ = STORED

    settings: SettingsOfModel
    history: tuple[Stage, ...] = ()
    start: Sha256 | None = None
    facts: Facts = Facts()
    label: str = ""

    def __eq__(self, other: object) -> bool:
        """Return True if both were trained in the same way."""
        return isinstance(other, Series) and self.id == other.id

    def __hash__(self) -> int:
        """Return the hash of what counts."""
        return hash(self.id)

    @cached_property
    def id(self) -> str:
        """Hash of what counts. It is computed by the rule of this release, and never stored."""
        content: dict[str, Any] = {"settings": canonical(self.settings), "start": self.start}
        content["history"] = [
            {"until": stage.until, "settings": canonical(stage.settings)} for stage in self.history
        ]
        text = json.dumps(content, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def settings_known(self) -> bool:
        """False for a model of which only the weights are known."""
        return "weights" not in self.settings

    @cached_property
    def method(self) -> MethodSpec:
        """Position methods of the layers as trained."""
        return _METHOD_TYPE.validate_python(self.settings["method"])

    @property
    def train_length(self) -> int:
        """Training length in tokens."""
        length = self.settings.get("task.tokens_per_sample")
        return (
            applicable_defaults(self.settings)["task.tokens_per_sample"]
            if length is None
            else length
        )

    @property
    def learning_rate(self) -> Any:
        """Requested peak learning rate; None if the training is unknown."""
        if not self.settings_known:
            return None
        rate = self.settings.get("optimization.lr")
        return applicable_defaults(self.settings)["optimization.lr"] if rate is None else rate

    @property
    def tokens_per_update(self) -> int | None:
        """Requested tokens per update. The last update of an epoch may have fewer.

        None without a number of processes, which early results lack.
        """
        if "processes" not in self.settings:
            return None
        sequences = canonical(self.settings).get("sequences_per_update")
        return sequences * self.train_length if isinstance(sequences, int) else None

    def resumed(self, updates: int, settings: Settings) -> Series:
        """Return the series of the training after it was resumed.

        Settings that do not count add nothing to the history, such as another folder or number of
        updates.

        Args:
            updates: number of updates at which it was resumed.
            settings: settings from there on.
        """
        history = self.history
        if canonical(settings) != canonical(self.settings):
            history = (*history, Stage(updates, self.settings))
        return replace(self, settings=settings, history=history)


_SERIES_TYPE = TypeAdapter(Series)


def series_json(series: Series) -> dict[str, Any]:
    """Return a series as JSON values, without defaults."""
    return _SERIES_TYPE.dump_python(series, mode="json", exclude_defaults=True)


def read_series(content: object, source: str) -> Series:
    """Return the series that JSON values describe.

    Args:
        source: file with the values, for messages.

    Raises:
        UserInputError: naming ``source`` and the first value that is wrong.
    """
    try:
        return _SERIES_TYPE.validate_json(json.dumps(content))
    except ValidationError as error:
        raise UserInputError(f"{source}: {describe_invalid(error)}") from error


@dataclass(frozen=True)
class Reading:
    """Which weights of a training are read, and how the model runs.

    Attributes:
        at: update count of the checkpoint; ``best`` for the one with the lowest validation loss;
            None if unknown.
        selection: settings that decide which checkpoint is the best one
            (:func:`.settings.selection`); None for any other checkpoint.
        overrides: model options that were changed for the evaluation.
        precision: precision of weights and activations.
        variant: name of the overrides, or of a Hugging Face folder, which isn't compared.
    """

    __pydantic_config__ = STORED

    at: NonNegativeInt | Literal["best"] | None
    selection: Settings | None = field(default=None, hash=False)
    overrides: Settings = field(default_factory=dict, hash=False)
    precision: NonEmptyStr = "fp32"
    variant: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        """Give the overrides one form, so that equal readings compare equal."""
        object.__setattr__(self, "overrides", _counting_overrides(self.overrides))


def _counting_overrides(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return the overridden options that may change the losses, in one form."""
    counting = {}
    for name, value in overrides.items():
        if f"model.{name}" not in IRRELEVANT:
            counting[name] = plain(value)
    return counting
