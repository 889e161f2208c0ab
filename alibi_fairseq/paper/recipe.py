"""The paper's training recipes, read from the YAML files of ``configs/``, which explain each value.

An update reads ``gpus × sequences × update_freq`` sequences of ``length`` tokens: each GPU makes
``update_freq`` passes over ``sequences`` sequences, then all gradients are summed. A recipe keeps
its tokens per update on any number of GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..errors import UserInputError, did_you_mean
from ..files import read_yaml
from ..results.model import Model
from . import packaged_folder

Settings = dict[str, dict[str, object]]

CONFIGS = packaged_folder("configs", "configs")
CORPORA = ("wikitext-103", "bookcorpus", "cc100-roberta")


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

    def on(self, gpus: int) -> Batch:
        """Distribute the same sequences per update over another number of GPUs.

        The number of passes is the smallest one that does not give a GPU more sequences at once
        than the recipe does, so that memory suffices wherever it suffices for the recipe.

        Raises:
            UserInputError: The sequences cannot be divided evenly among the GPUs.
        """
        if gpus == self.gpus:
            return self
        total = self.sequences_per_update
        if total % gpus:
            raise UserInputError(
                f"{gpus} GPUs do not work: an update has {total} sequences of {self.length} "
                f"tokens, and {total} is not divisible by {gpus}. Use a divisor of {total}."
            )
        sequences_per_gpu = total // gpus
        divisors = [n for n in range(1, self.sequences + 1) if sequences_per_gpu % n == 0]
        sequences = max(divisors)
        max_tokens = self.max_tokens
        if sequences != self.sequences:
            max_tokens = sequences * self.length
        return Batch(self.length, max_tokens, sequences_per_gpu // sequences, gpus)


@dataclass(frozen=True)
class Recipe:
    """All settings of one training run.

    Attributes:
        folder: folder of the recipe's file in ``configs/``.
        name: name of the file without suffix, e.g. ``alibi-512``.
        corpus: corpus of the training data.
        position_method: position method of the model.
        batch: sequences of an update.
        updates: number of updates.
        options: all other settings, by fairseq group.
        starts_from_another: True if training starts from the weights of a trained model.
    """

    folder: str
    name: str
    corpus: str
    position_method: str
    batch: Batch
    updates: int
    options: Settings
    starts_from_another: bool = False

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
            half_precision = [
                name for name in self.options["common"] if "fp16" in name or "bf16" in name
            ]
            computed["common"] = dict.fromkeys(half_precision, False)
            computed["common"]["cpu"] = True
        return merge(self.options, computed)


def with_run_config(recipe: Recipe, name: str) -> Recipe:
    """Return a recipe with the values of an overlay from ``run_config/``, such as ``80gb``.

    An overlay whose name continues with the length of the recipe, such as ``80gb_2048``, replaces
    the general one.

    Raises:
        UserInputError: there is no such overlay for the recipe.
    """
    folder = CONFIGS / recipe.folder / "run_config"
    length = recipe.name.partition("-")[2]
    path = folder / f"{name}_{length}.yaml"
    if not path.is_file():
        path = folder / f"{name}.yaml"
    if not path.is_file():
        names = sorted(overlay.stem for overlay in folder.glob("*.yaml"))
        raise UserInputError(
            f"There is no run_config '{name}' for {recipe.path}. Choose from {', '.join(names)}."
        )
    options: dict[str, dict[str, Any]] = merge(recipe.options, read_yaml(path))
    max_tokens = options["dataset"].pop("max_tokens", recipe.batch.max_tokens)
    (update_freq,) = options["optimization"].pop("update_freq", [recipe.batch.update_freq])
    gpus = options["distributed_training"].pop("distributed_world_size", recipe.batch.gpus)
    updates = options["optimization"].pop("max_update", recipe.updates)
    batch = Batch(recipe.train_length, max_tokens, update_freq, gpus)
    return replace(recipe, batch=batch, updates=updates, options=options)


def load_recipe(path: Path) -> Recipe:
    """Load a recipe from its file."""
    options = read_yaml(path)
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
    start_model = options["checkpoint"].pop("finetune_from_model", None)
    folder = path.parent.name
    # The recipes of "extend" continue models of WikiText-103.
    corpus = folder if folder in CORPORA else "wikitext-103"
    return Recipe(
        folder=folder,
        name=path.stem,
        corpus=corpus,
        position_method=position_method,
        batch=batch,
        updates=updates,
        options=options,
        starts_from_another=bool(start_model),
    )


def _read_all() -> dict[str, Recipe]:
    """Load all recipes, by ``folder/name``. Those in ``extend`` are not part of the paper."""
    recipes = {}
    for folder in (*CORPORA, "extend"):
        for path in sorted((CONFIGS / folder).glob("*.yaml")):
            recipe = load_recipe(path)
            recipes[recipe.path] = recipe
    return recipes


#: All recipes, by ``folder/name``.
RECIPES = _read_all()


def recipe_name(corpus: str, model: Model) -> str:
    """Return the name that a recipe of a model has, such as ``wikitext-103/alibi-512``."""
    method = "+".join(dict.fromkeys(model.method.names)).replace("_", "-")
    return f"{corpus}/{method}-{model.train_length}"


def find_recipe(path: str) -> Recipe:
    """Return the recipe named ``folder/name``, or with the path of its file in ``configs/``."""
    name = path.removeprefix("configs/").removesuffix(".yaml").removesuffix(".sh")
    if name not in RECIPES:
        hint = did_you_mean(name, RECIPES)
        raise UserInputError(
            f"There is no recipe '{path}'.{hint} configs/README.md lists them all."
        )
    return RECIPES[name]


def merge(*parts: Settings) -> Settings:
    """Merge settings; later ones override earlier ones."""
    merged: Settings = {}
    for part in parts:
        for group, values in part.items():
            merged[group] = {**merged.get(group, {}), **values}
    return merged


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
