"""The paper's training runs, read from the YAML files of ``configs/``, which explain each value.

An update sees ``gpus × sequences × update_freq`` sequences of ``length`` tokens: each GPU runs
``update_freq`` passes over ``sequences`` sequences and then all gradients are added up. A recipe keeps
its tokens per update on any number of GPUs. A :class:`Scale` makes it a smaller run of the same kind.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from ..errors import UserInputError, did_you_mean
from . import data_folder

Settings = dict[str, dict[str, object]]

CONFIGS = data_folder("configs", "configs")
CORPORA = ("wikitext-103", "bookcorpus", "cc100-roberta")


@dataclass(frozen=True)
class Batch:
    """How the sequences of one update are shared out."""

    length: int  # tokens per sequence
    max_tokens: int  # most in one pass of one GPU: its sequences, and perhaps room for part of one
    update_freq: int  # passes of each GPU per update
    gpus: int  # of all nodes together

    @property
    def sequences(self) -> int:
        """In one pass of one GPU."""
        return self.max_tokens // self.length

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
        """
        if gpus < 1:
            raise UserInputError(f"The number of GPUs must be at least 1, not {gpus}.")
        if gpus == self.gpus:
            return self
        total = self.sequences_per_update
        if total % gpus:
            raise UserInputError(
                f"{gpus} GPUs cannot keep {self.tokens_per_update:,} tokens per update: its {total} "
                f"sequences of {self.length} tokens cannot be dealt out evenly; use a divisor of "
                f"{total}."
            )
        share = total // gpus
        sequences = max(n for n in range(1, self.sequences + 1) if share % n == 0)
        most = self.max_tokens if sequences == self.sequences else sequences * self.length
        return Batch(self.length, most, share // sequences, gpus)


@dataclass(frozen=True)
class Recipe:
    """One training run, complete."""

    folder: str  # of its file below configs/
    name: str  # of its file, e.g. alibi-512
    corpus: str  # that it trains on
    position_method: str
    batch: Batch
    updates: int
    options: Settings  # all others
    starts_from_another: bool = False  # it begins with the weights of a trained model

    @property
    def path(self) -> str:
        """``folder/name``, the recipe's name everywhere."""
        return f"{self.folder}/{self.name}"

    @property
    def train_length(self) -> int:
        return self.batch.length

    def settings(self, gpus: int | None = None, cpu: bool = False) -> Settings:
        """All options by fairseq group, for the published or another number of GPUs, or of processes on a CPU."""
        batch = self.batch if gpus is None else self.batch.on(gpus)
        computed: Settings = {
            "task": {"tokens_per_sample": batch.length},
            "model": {"position_method": self.position_method},
            "dataset": {"max_tokens": batch.max_tokens},
            "optimization": {"max_update": self.updates, "update_freq": [batch.update_freq]},
            "distributed_training": {"distributed_world_size": batch.gpus},
        }
        if cpu:
            half = {name: False for name in self.options["common"] if "fp16" in name}
            computed["common"] = {**half, "cpu": True}
        return merge(self.options, computed)


def read(path: Path) -> Recipe:
    """A recipe from its file."""
    options = yaml.safe_load(path.read_text(encoding="utf-8"))
    del options["task"]["data"]
    (update_freq,) = options["optimization"].pop("update_freq")
    folder = path.parent.name
    return Recipe(
        folder=folder,
        name=path.stem,
        corpus=folder if folder in CORPORA else "wikitext-103",
        position_method=options["model"].pop("position_method"),
        batch=Batch(
            length=options["task"].pop("tokens_per_sample"),
            max_tokens=options["dataset"].pop("max_tokens"),
            update_freq=update_freq,
            gpus=options["distributed_training"].pop("distributed_world_size"),
        ),
        updates=options["optimization"].pop("max_update"),
        starts_from_another=bool(options["checkpoint"].pop("finetune_from_model", False)),
        options=options,
    )


RECIPES: dict[str, Recipe] = {
    recipe.path: recipe
    for folder in (*CORPORA, "extend")  # which goes beyond the paper
    for recipe in map(read, sorted((CONFIGS / folder).glob("*.yaml")))
}


def find_recipe(path: str) -> Recipe:
    """The recipe called ``folder/name``; the path of its file in ``configs/`` is understood too."""
    name = path.removeprefix("configs/").removesuffix(".yaml").removesuffix(".sh")
    if name not in RECIPES:
        hint = did_you_mean(name, RECIPES)
        raise UserInputError(
            f"There is no recipe '{path}'.{hint} configs/README.md lists them all."
        )
    return RECIPES[name]


def merge(*parts: Settings) -> Settings:
    """Settings merged, later ones overriding earlier ones."""
    merged: Settings = {}
    for part in parts:
        for group, values in part.items():
            merged[group] = {**merged.get(group, {}), **values}
    return merged


def flags(settings: Settings) -> list[str]:
    """All settings as command-line arguments."""
    arguments = []
    for group, options in settings.items():
        for option, value in options.items():
            if option == "_name":  # of the group's component
                option = "arch" if group == "model" else group
            name = "--" + option.replace("_", "-")
            if isinstance(value, bool):
                arguments += [name] if value else []  # every switch here is off by default
            else:
                text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
                arguments += [name, text]
    return arguments


@dataclass(frozen=True)
class Scale:
    """How far a recipe is scaled down; method, length, task, loss, optimiser and kind of schedule stay."""

    name: str
    caveat: str  # how far its results go, for the header of a table
    updates: int | None = None  # of every run; None: the recipe's
    tokens: int = 0  # per update, at most
    vocabulary: int | None = None  # the most frequent words or pieces are kept; None: all
    cutoffs: str = ""  # of adaptive input and softmax, where the recipe has them
    model: dict[str, object] = field(default_factory=dict)
    checkpoint: dict[str, object] = field(default_factory=dict)
    excerpt: dict[str, int] = field(default_factory=dict)  # tokens of each split; empty: all
    prepare: dict[str, str] = field(default_factory=dict)  # flags by corpus
    log_interval: int = 100

    def updates_of(self, recipe: Recipe, updates: int) -> int:
        """The number of updates at this scale that is the same share of the run."""
        if self.updates is None:
            return updates
        return max(1, round(self.updates * updates / recipe.updates))

    def recipe(self, recipe: Recipe) -> Recipe:
        """The run at this scale: its schedule shortened, its model as narrow as the scale says."""
        if self.updates is None:
            return recipe
        schedule: dict[str, Any] = recipe.options["lr_scheduler"]
        warmup = max(1, round(schedule["warmup_updates"] * self.updates / recipe.updates))
        end: dict[str, Any] = {"total_num_update": float(self.updates)}
        if schedule["_name"] == "cosine":
            end = {"lr_period_updates": self.updates - warmup}
        options: Settings = {
            "model": dict(self.model),
            "lr_scheduler": {"warmup_updates": warmup, **end},
            "checkpoint": self.checkpoint,
            # The same loss in less time, most of which a small model spends on its output layer.
            "criterion": {"_name": f"chunked_{recipe.options['criterion']['_name']}"},
        }
        if "adaptive_input_cutoff" in recipe.options["model"]:
            for name in ("adaptive_input_cutoff", "adaptive_softmax_cutoff"):
                options["model"][name] = self.cutoffs
        length = recipe.train_length
        return replace(
            recipe,
            batch=Batch(length, self.tokens // length * length or length, update_freq=1, gpus=1),
            updates=self.updates,
            options=merge(recipe.options, options),
        )


#: The paper's own, and those of ``configs/scales/``.
SCALES = {"paper": Scale("paper", "the paper's runs")} | {
    path.stem: Scale(path.stem, **yaml.safe_load(path.read_text(encoding="utf-8")))
    for path in sorted((CONFIGS / "scales").glob("*.yaml"))
}
