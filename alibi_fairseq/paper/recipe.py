"""The paper's training recipes, from the files ``base.yaml`` and ``recipes.csv`` of ``configs/``.

``base.yaml`` has the options that the runs of a folder have in common, and explains each value. A
row of ``recipes.csv`` is a run. Its columns with a dot are options that vary.

An update reads ``gpus × sequences × update_freq`` sequences of ``length`` tokens: each GPU makes
``update_freq`` passes over ``sequences`` sequences, then all gradients are summed. A recipe keeps
its tokens per update on any number of GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import yaml

from ..errors import UserInputError, did_you_mean
from ..files import read_yaml
from ..positions.spec import MethodSpec
from . import packaged_folder, published

Settings = dict[str, dict[str, object]]

CONFIGS = packaged_folder("configs", "configs")
CORPORA = ("wikitext-103", "bookcorpus", "cc100-roberta")
#: Folder of the recipes that continue models of WikiText-103.
EXTEND = "extend"


@dataclass(frozen=True)
class Batch:
    """Distribution of the sequences of one update over GPUs and passes.

    Attributes:
        length: tokens per sequence.
        max_tokens: largest number of tokens in one pass of one GPU. It need not be a multiple of
            ``length``.
        update_freq: passes of each GPU per update.
        gpus: number of GPUs across all nodes.
    """

    length: int
    max_tokens: int
    update_freq: int
    gpus: int

    @property
    def sequences(self) -> int:
        """Number of sequences in one pass of one GPU."""
        return self.max_tokens // self.length

    @property
    def sequences_per_update(self) -> int:
        """Number of sequences in one update of all GPUs."""
        return self.gpus * self.sequences * self.update_freq

    @property
    def tokens_per_update(self) -> int:
        """Number of tokens in one update of all GPUs."""
        return self.length * self.sequences_per_update

    def on(self, gpus: int, max_tokens: int | None = None) -> Batch:
        """Distribute the same sequences per update over another number of GPUs.

        The number of passes is the smallest one with which a pass has at most ``max_tokens``
        tokens. These are the recipe's by default, so that memory suffices wherever it suffices for
        the recipe.

        Raises:
            UserInputError: The sequences cannot be divided evenly among the GPUs.
        """
        if max_tokens is None:
            if gpus == self.gpus:
                return self
            max_tokens = self.max_tokens
        total = self.sequences_per_update
        if total % gpus:
            possible = ", ".join(str(n) for n in range(1, total + 1) if total % n == 0)
            raise UserInputError(
                f"{gpus} GPUs do not work: an update has {total} sequences of {self.length} "
                f"tokens, and {total} is not divisible by {gpus}. Use one of these numbers of "
                f"GPUs: {possible}."
            )
        sequences_per_gpu = total // gpus
        most_sequences = max_tokens // self.length
        divisors = [n for n in range(1, most_sequences + 1) if sequences_per_gpu % n == 0]
        sequences = max(divisors)
        if sequences != most_sequences:
            max_tokens = sequences * self.length
        return Batch(self.length, max_tokens, sequences_per_gpu // sequences, gpus)


@dataclass(frozen=True)
class Recipe:
    """All settings of one training run.

    Attributes:
        folder: folder of the recipe in ``configs/``.
        name: name in that folder, e.g. ``alibi-512``.
        corpus: corpus of the training data.
        position_method: position method of the model.
        batch: sequences of an update.
        updates: number of updates.
        options: all other settings, by fairseq group.
        max_tokens_80gb: largest number of tokens in one pass of a GPU with 80 GB.
        parameters: number of parameters of the model.
        v100_hours: hours of the training on one V100; None if unknown.
        starts_from: recipe of the model whose training it continues, if it does.
    """

    folder: str
    name: str
    corpus: str
    position_method: str
    batch: Batch
    updates: int
    options: Settings
    max_tokens_80gb: int
    parameters: int
    v100_hours: int | None
    starts_from: str | None = None

    @property
    def path(self) -> str:
        """Full name of the recipe, ``folder/name``."""
        return f"{self.folder}/{self.name}"

    @property
    def train_length(self) -> int:
        """Tokens per training sample."""
        return self.batch.length

    def settings(self, gpus: int | None = None, cpu: bool = False) -> Settings:
        """Return all options by fairseq group.

        Args:
            gpus: number of GPUs, or of processes on a CPU (default: the recipe's).
            cpu: True to train on a CPU.
        """
        batch = self.batch if gpus is None else self.batch.on(gpus)
        computed: Settings = {
            "task": {"tokens_per_sample": batch.length},
            "model": {"position_method": self.position_method},
            "dataset": {"max_tokens": batch.max_tokens},
            "optimization": {"max_update": self.updates, "update_freq": [batch.update_freq]},
            "distributed_training": {"distributed_world_size": batch.gpus},
        }
        if cpu:
            computed["common"] = _without_half_precision(self.options)
            computed["common"]["cpu"] = True
        return merge(self.options, computed)


def merge(*parts: Settings) -> Settings:
    """Merge settings; later ones override earlier ones."""
    merged: Settings = {}
    for part in parts:
        for group, values in part.items():
            merged[group] = {**merged.get(group, {}), **values}
    return merged


def for_80gb(recipe: Recipe) -> Recipe:
    """Return a recipe for cards with 80 GB: bf16, fp32 copies of the weights, and larger passes.

    It has the tokens per update of the recipe, on one GPU.
    """
    precision = _without_half_precision(recipe.options)
    precision["bf16"] = True
    options = merge(recipe.options, {"common": precision})
    if options["criterion"]["_name"] == "adaptive_loss":
        # Summed in bf16, the loss of a batch in a validation would be a multiple of 512 nats.
        options["criterion"]["_name"] = "chunked_adaptive_loss"
    return replace(recipe, batch=recipe.batch.on(1, recipe.max_tokens_80gb), options=options)


def _without_half_precision(options: Settings) -> dict[str, object]:
    """Return the options that turn the half precision of a recipe off."""
    names = [name for name in options["common"] if "fp16" in name or "bf16" in name]
    return dict.fromkeys(names, False)


def _make_recipe(folder: str, corpus: str, base: Settings, row: Mapping[str, Any]) -> Recipe:
    """Create the recipe of a row from the options that all recipes of its folder share."""
    options: dict[str, dict[str, Any]] = merge(base, _read_options(row))
    # Values with an attribute in Recipe or Batch are removed from the options.
    del options["task"]["data"]
    (update_freq,) = options["optimization"].pop("update_freq")
    batch = Batch(
        length=options["task"].pop("tokens_per_sample"),
        max_tokens=options["dataset"].pop("max_tokens"),
        update_freq=update_freq,
        gpus=options["distributed_training"].pop("distributed_world_size"),
    )
    position_method = options["model"].pop("position_method")
    updates = options["optimization"].pop("max_update")
    return Recipe(
        folder=folder,
        name=row["recipe"],
        corpus=corpus,
        position_method=position_method,
        batch=batch,
        updates=updates,
        options=options,
        max_tokens_80gb=row["max_tokens_80gb"],
        parameters=row["parameters"],
        v100_hours=row["v100_hours"],
        starts_from=row.get("starts_from"),
    )


def _read_options(row: Mapping[str, Any]) -> Settings:
    """Return the options of a row, from its columns such as ``task.tokens_per_sample``."""
    options: Settings = {}
    for column, value in row.items():
        group, dot, name = column.partition(".")
        if dot and value is not None:
            options.setdefault(group, {})[name] = yaml.safe_load(str(value))
    return options


def _read_all() -> dict[str, Recipe]:
    """Load all recipes, by ``folder/name``. Those in ``extend`` are not part of the paper."""
    recipes = {}
    for folder in (*CORPORA, EXTEND):
        base = read_yaml(CONFIGS / folder / "base.yaml")
        corpus = folder
        if folder == EXTEND:
            corpus = "wikitext-103"
            base = merge(read_yaml(CONFIGS / corpus / "base.yaml"), base)
        for row in published.read_rows(CONFIGS / folder / "recipes.csv"):
            recipe = _make_recipe(folder, corpus, base, row)
            recipes[recipe.path] = recipe
    return recipes


#: All recipes, by ``folder/name``.
RECIPES = _read_all()


def recipe_path(corpus: str, method: MethodSpec, train_length: int) -> str:
    """Return the path that a recipe of a model has, such as ``wikitext-103/alibi-512``."""
    names = "+".join(dict.fromkeys(method.names)).replace("_", "-")
    return f"{corpus}/{names}-{train_length}"


def find_recipe(path: str) -> Recipe:
    """Return the recipe named ``folder/name``."""
    if path not in RECIPES:
        hint = did_you_mean(path, RECIPES)
        raise UserInputError(
            f"There is no recipe '{path}'.{hint} The files configs/*/recipes.csv list them all."
        )
    return RECIPES[path]


def flags(settings: Settings) -> list[str]:
    """Convert settings to command-line arguments."""
    arguments: list[str] = []
    for group, options in settings.items():
        for option, value in options.items():
            flag = _flag(group, option)
            if value is True:
                arguments.append(flag)
            elif isinstance(value, list):
                arguments += [flag, ",".join(str(element) for element in value)]
            elif value is not False:  # every switch in the recipes is off by default
                arguments += [flag, str(value)]
    return arguments


def _flag(group: str, option: str) -> str:
    """Return the flag of an option in a fairseq group."""
    name = option
    if option == "_name":  # "_name" selects the component
        name = "arch" if group == "model" else group
    return "--" + name.replace("_", "-")
