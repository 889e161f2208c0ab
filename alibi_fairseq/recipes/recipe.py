"""What a training run is: one description, from which YAML, shell lines and costs are derived."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .batching import Batch

#: fairseq's configuration groups in the order in which they are written.
GROUPS = (
    "common",
    "task",
    "model",
    "criterion",
    "dataset",
    "optimization",
    "optimizer",
    "lr_scheduler",
    "checkpoint",
    "distributed_training",
)

Settings = dict[str, dict[str, object]]


@dataclass(frozen=True)
class Corpus:
    """A training corpus.

    Attributes:
        name: as on the command line, e.g. ``wikitext-103``.
        title: as in prose.
        tokens: training tokens, line ends counted.
        dictionary: dictionary entries, fairseq's four special symbols counted.
        tokens_note: where the number of tokens comes from.
    """

    name: str
    title: str
    tokens: int
    dictionary: int
    tokens_note: str


@dataclass(frozen=True)
class Recipe:
    """One training run of the paper, complete.

    Attributes:
        name: file name without its ending, e.g. ``alibi-512``.
        parameters: with a dictionary of ``corpus.dictionary`` entries.
        as_fast_as: the position method whose speed the paper measured, when it is another one.
        choices: what the paper does not say: {(group, option): why we chose so}.
        notes: sentences for the head of the file.
    """

    corpus: Corpus
    name: str
    position_method: str
    batch: Batch
    updates: int
    parameters: int
    options: Settings
    as_fast_as: str | None = None
    choices: Mapping[tuple[str, str], str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """``corpus/name``: how a recipe is called everywhere."""
        return f"{self.corpus.name}/{self.name}"

    @property
    def train_length(self) -> int:
        return self.batch.length

    @property
    def total_tokens(self) -> int:
        return self.updates * self.batch.tokens_per_update

    @property
    def epochs(self) -> float:
        return self.total_tokens / self.corpus.tokens

    def settings(self, gpus: int | None = None) -> Settings:
        """All options by fairseq group, for the published or another number of GPUs."""
        batch = self.batch if gpus is None else self.batch.on(gpus)
        computed: Settings = {
            "task": {"tokens_per_sample": batch.length},
            "model": {"position_method": self.position_method},
            "dataset": {"max_tokens": batch.max_tokens},
            "optimization": {"max_update": self.updates, "update_freq": [batch.update_freq]},
            "distributed_training": {"distributed_world_size": batch.gpus},
        }
        return merge(self.options, computed)


def recipe_name(method: str, length: int | str) -> str:
    """``alibi``, 512 → ``alibi-512``."""
    return f"{method.replace('_', '-')}-{length}"


def merge(*parts: Settings) -> Settings:
    """Settings laid over one another, the last one on top; groups in their usual order."""
    merged: Settings = {}
    for group in GROUPS:
        values: dict[str, object] = {}
        for part in parts:
            values.update(part.get(group, {}))
        if values:
            merged[group] = values
    return merged
