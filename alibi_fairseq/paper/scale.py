"""Scales: reductions of the paper's recipes to smaller runs, from ``configs/scales/``."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..files import read_yaml
from .recipe import CONFIGS, Batch, Recipe, Settings, merge


@dataclass(frozen=True)
class Scale:
    """Reduction of recipes in model size, data, and updates.

    Position method, training length, task, loss, optimizer, and kind of schedule stay the same.

    Attributes:
        name: name on the command line.
        caveat: description of the runs, for the warning above a table.
        updates: number of updates of every run (default: the recipe's).
        tokens: largest number of tokens per update.
        vocabulary: number of most frequent words or pieces to keep (default: all).
        cutoffs: cutoffs of adaptive input and softmax, for recipes that have them.
        model: model options.
        checkpoint: checkpoint options.
        excerpt: tokens to keep of each split; empty for all.
        prepare: options of the preparation by corpus.
        log_interval: updates between log lines.
    """

    name: str
    caveat: str
    updates: int | None = None
    tokens: int = 0
    vocabulary: int | None = None
    cutoffs: str = ""
    model: dict[str, object] = field(default_factory=dict)
    checkpoint: dict[str, object] = field(default_factory=dict)
    excerpt: dict[str, int] = field(default_factory=dict)
    prepare: dict[str, dict[str, int]] = field(default_factory=dict)
    log_interval: int = 100

    def scale_updates(self, recipe: Recipe, updates: int) -> int:
        """Convert an update count of a recipe to the same fraction of a run at this scale."""
        if self.updates is None:
            return updates
        return max(1, round(self.updates * updates / recipe.updates))

    def scale_recipe(self, recipe: Recipe) -> Recipe:
        """Return a recipe at this scale, with a shorter schedule and a smaller model."""
        if self.updates is None:
            return recipe
        criterion = str(recipe.options["criterion"]["_name"]).removeprefix("chunked_")
        options: Settings = {
            "model": dict(self.model),
            "lr_scheduler": _shortened_schedule(recipe, self.updates),
            "checkpoint": self.checkpoint,
            # The same loss in less time: a small model spends most time on its output layer.
            "criterion": {"_name": f"chunked_{criterion}"},
        }
        if "adaptive_input_cutoff" in recipe.options["model"]:
            for name in ("adaptive_input_cutoff", "adaptive_softmax_cutoff"):
                options["model"][name] = self.cutoffs
        length = recipe.train_length
        sequences = max(1, self.tokens // length)
        return replace(
            recipe,
            batch=Batch(length, sequences * length, update_freq=1, gpus=1),
            updates=self.updates,
            options=merge(recipe.options, options),
        )


def _shortened_schedule(recipe: Recipe, updates: int) -> dict[str, object]:
    """Return the options by which a recipe's learning-rate schedule ends after ``updates``."""
    schedule: dict[str, Any] = recipe.options["lr_scheduler"]
    warmup = max(1, round(schedule["warmup_updates"] * updates / recipe.updates))
    if schedule["_name"] == "cosine":
        return {"warmup_updates": warmup, "lr_period_updates": updates - warmup}
    return {"warmup_updates": warmup, "total_num_update": float(updates)}


def load_scale(path: Path) -> Scale:
    """Load a scale from its file."""
    return Scale(path.stem, **read_yaml(path))


#: The paper's scale and the scales of ``configs/scales/``, by name.
SCALES = {"paper": Scale("paper", "the paper's runs")}
for _path in sorted((CONFIGS / "scales").glob("*.yaml")):
    SCALES[_path.stem] = load_scale(_path)
