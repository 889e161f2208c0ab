"""A training run: one description, from which YAML, command lines and costs are derived.

An update sees ``gpus × sequences × update_freq`` sequences of ``length`` tokens: each GPU runs
``update_freq`` passes over ``sequences`` sequences and then all gradients are added up. A recipe keeps
its tokens per update on any number of GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ..errors import BadInput

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
#: What fairseq's command line calls the name of a group's component.
NAME_FLAGS = {
    "task": "--task",
    "model": "--arch",
    "criterion": "--criterion",
    "optimizer": "--optimizer",
    "lr_scheduler": "--lr-scheduler",
}

Settings = dict[str, dict[str, object]]


@dataclass(frozen=True)
class Batch:
    """How the sequences of one update are shared out.

    Attributes:
        length: tokens per sequence.
        sequences: sequences in one pass of one GPU.
        update_freq: passes of each GPU per update.
        gpus: GPUs of all nodes together.
        room: fairseq's ``--max-tokens`` where the published value is larger than the sequences.
    """

    length: int
    sequences: int
    update_freq: int
    gpus: int
    room: int | None = None

    @property
    def max_tokens(self) -> int:
        """fairseq's ``--max-tokens``: most tokens in one pass of one GPU."""
        return self.room or self.length * self.sequences

    @property
    def sequences_per_update(self) -> int:
        return self.gpus * self.sequences * self.update_freq

    @property
    def tokens_per_update(self) -> int:
        return self.length * self.sequences_per_update

    def on(self, gpus: int) -> Batch:
        """The same sequences per update on another number of GPUs.

        Takes as few passes as possible without ever giving a GPU more sequences at once than the
        recipe does, so that it fits where the recipe fits.

        Raises:
            BadInput: the sequences of an update cannot be dealt out evenly.
        """
        if gpus < 1:
            raise BadInput(f"The number of GPUs must be at least 1, not {gpus}.")
        if gpus == self.gpus:
            return self
        total = self.sequences_per_update
        if total % gpus:
            possible = [n for n in range(1, total + 1) if total % n == 0]
            nearest = sorted(sorted(possible, key=lambda n: abs(n - gpus))[:4])
            offered = " or ".join(", ".join(str(n) for n in nearest).rsplit(", ", 1))
            raise BadInput(
                f"{gpus} GPUs cannot keep {self.tokens_per_update:,} tokens per update: its {total} "
                f"sequences of {self.length} tokens cannot be dealt out evenly; "
                f"use {offered}."
            )
        share = total // gpus
        sequences = max(n for n in range(1, self.sequences + 1) if share % n == 0)
        return replace(
            self,
            sequences=sequences,
            update_freq=share // sequences,
            gpus=gpus,
            room=self.room if sequences == self.sequences else None,
        )

    def arithmetic(self) -> str:
        """The product spelled out, e.g. ``8 GPUs × 18 sequences × 512 tokens = 73,728 tokens``."""
        gpus = f"{self.gpus} GPU" + ("s" if self.gpus > 1 else "")
        sequences = f"{self.sequences} sequence" + ("s" if self.sequences > 1 else "")
        passes = f" × {self.update_freq} passes" if self.update_freq > 1 else ""
        return (
            f"{gpus} × {sequences} × {self.length} tokens{passes} "
            f"= {self.tokens_per_update:,} tokens"
        )


@dataclass(frozen=True)
class Corpus:
    """A training corpus.

    Attributes:
        name: as on the command line, e.g. ``wikitext-103``.
        title: as in prose.
        tokens: training tokens, including one ``</s>`` per line.
        dictionary: entries including fairseq's four special symbols.
        tokens_note: the source of the number of tokens.
    """

    name: str
    title: str
    tokens: int
    dictionary: int
    tokens_note: str


@dataclass(frozen=True)
class Recipe:
    """One training run, complete.

    Attributes:
        name: file name without its suffix, e.g. ``alibi-512``.
        parameters: with a dictionary of ``corpus.dictionary`` entries.
        as_fast_as: the position method whose training speed in the paper stands for this one's.
        folder: of its files below ``configs/``; that of the corpus if not given.
        starts_from: the recipe of the model whose weights it begins with, if any.
        choices: what the paper does not specify: {(group, option): the reason for our value}.
        notes: paragraphs for the header of the file.
    """

    corpus: Corpus
    name: str
    position_method: str
    batch: Batch
    updates: int
    parameters: int
    options: Settings
    as_fast_as: str | None = None
    folder: str = ""
    starts_from: str | None = None
    choices: Mapping[tuple[str, str], str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", self.folder or self.corpus.name)

    @property
    def path(self) -> str:
        """``folder/name``, the recipe's name everywhere."""
        return f"{self.folder}/{self.name}"

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
    """Settings merged, later ones overriding earlier ones; groups in their usual order."""
    merged: Settings = {}
    for group in GROUPS:
        values: dict[str, object] = {}
        for part in parts:
            values.update(part.get(group, {}))
        if values:
            merged[group] = values
    return merged


def flags(settings: Settings) -> list[str]:
    """All settings as command-line words."""
    return [
        word
        for group, options in settings.items()
        for option, value in options.items()
        for word in flag(group, option, value)
    ]


def flag(group: str, option: str, value: object) -> list[str]:
    """One option as command-line words."""
    name = NAME_FLAGS[group] if option == "_name" else "--" + option.replace("_", "-")
    if isinstance(value, bool):
        return (
            [name] if value else []
        )  # every switch used here is off by default, or on in the preset
    if isinstance(value, list):
        value = ",".join(str(item) for item in value)
    return [name, str(value)]
