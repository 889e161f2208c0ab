"""How large: the paper's runs, small real ones, or ones that only show that everything works."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ..recipes import Batch, Recipe, Settings, merge
from ..recipes.overlays import shortened, tiny


@dataclass(frozen=True)
class Scale:
    """What becomes of a recipe. Position method, length, task, criterion, optimiser and the kind of
    schedule stay.

    Attributes:
        name: as on the command line.
        worth: what its results are worth, for the head of a table.
        updates: of every run; None: the recipe's.
        tokens: per update, about.
        shape: options of the model.
        excerpt: tokens of each split that are used; empty: all.
        prepare: further flags of a corpus's preparation.
        log_interval: updates between two lines of the training's log.
    """

    name: str
    worth: str
    updates: int | None = None
    tokens: int = 0
    shape: dict[str, object] = field(default_factory=dict)
    excerpt: dict[str, int] = field(default_factory=dict)
    prepare: dict[str, list[str]] = field(default_factory=dict)
    log_interval: int = 100

    def updates_of(self, recipe: Recipe, updates: int) -> int:
        """The age of a model at this scale: the same share of the run."""
        if self.updates is None:
            return updates
        return max(1, round(self.updates * updates / recipe.updates))

    def recipe(self, recipe: Recipe) -> Recipe:
        """The run at this scale."""
        if self.updates is None:
            return recipe
        model = shape_of(recipe, self)
        sequences = max(1, self.tokens // recipe.train_length)
        options: Settings = {
            "model": model,
            "lr_scheduler": shortened(recipe, self.updates)["lr_scheduler"],
        }
        return replace(
            recipe,
            batch=Batch(recipe.train_length, sequences, update_freq=1, gpus=1),
            updates=self.updates,
            parameters=most_parameters(recipe, model),
            options=merge(recipe.options, options),
        )


def shape_of(recipe: Recipe, scale: Scale) -> dict[str, object]:
    """Options of the small model."""
    return {**tiny(recipe)["model"], **scale.shape}


def most_parameters(recipe: Recipe, model: dict) -> int:
    """An upper bound, with the dictionary of the paper's corpus."""
    width, inner = model["decoder_embed_dim"], model["decoder_ffn_embed_dim"]
    layer = 4 * width * width + 2 * width * inner + 13 * width
    return model["decoder_layers"] * layer + 2 * recipe.corpus.dictionary * width


PAPER = Scale("paper", "the paper's runs")
MINI = Scale(
    name="mini",
    worth="small models, trained briefly: how position methods compare, not how good they are",
    updates=2000,
    tokens=9216,
    shape={
        "decoder_layers": 4,
        "decoder_embed_dim": 256,
        "decoder_ffn_embed_dim": 1024,
    },
    excerpt={"train": 100_000_000, "valid": 65_536, "test": 65_536},
    prepare={
        "bookcorpus": ["--vocab-size", "8000"],
        "cc100-roberta": ["--vocab-size", "8000", "--valid-tokens", "66000", "--shards", "1"],
    },
    log_interval=10,
)
SMOKE = Scale(
    name="smoke",
    worth="a few updates of tiny models: that every step works, and nothing else",
    updates=10,
    tokens=3072,
    excerpt={"train": 100_000, "valid": 4096, "test": 4096},
    prepare={
        "bookcorpus": ["--vocab-size", "600"],
        "cc100-roberta": ["--vocab-size", "600", "--valid-tokens", "5000", "--shards", "1"],
    },
    log_interval=1,
)
SCALES = {scale.name: scale for scale in (PAPER, MINI, SMOKE)}
