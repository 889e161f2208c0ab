"""``run_config/`` overlays: the same run on other machines, tokens per update kept."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ..errors import BadInput
from .catalogue import recipes_of
from .recipe import Batch, Recipe, Settings, merge, recipe_name

#: Overlay name → GPUs of all nodes together.
OVERLAY_GPUS = {"1_gpu": 1, "8_gpus": 8, "4x8_slurm": 32}
#: The port on the first node at which SLURM tasks meet.
SLURM_PORT = 29500


def variant(recipe: Recipe) -> str:
    """What tells the recipe from the others of its corpus and method: ``512``, ``2048-corrected``."""
    return recipe.name.removeprefix(recipe_name(recipe.position_method, ""))


def world_settings(batch: Batch, world: str) -> Settings:
    """The options that say how an update is shared out, and nothing else."""
    distributed: dict[str, object] = {"distributed_world_size": batch.gpus}
    if world == "4x8_slurm":
        distributed["distributed_port"] = SLURM_PORT
    return {
        "dataset": {"max_tokens": batch.max_tokens},
        "optimization": {"update_freq": [batch.update_freq]},
        "distributed_training": distributed,
    }


def batches(recipes: list[Recipe], world: str) -> dict[str, Batch]:
    """The batch of each variant of a corpus on that machine, where there is one."""
    found = {}
    for recipe in recipes:
        try:
            found[variant(recipe)] = recipe.batch.on(OVERLAY_GPUS[world])
        except BadInput:
            continue
    return found


def passes(batch: Batch) -> tuple[int, int]:
    """The options that share an update out: tokens of a pass, and passes."""
    return batch.max_tokens, batch.update_freq


def usual_passes(recipes: list[Recipe], world: str) -> tuple[int, int] | None:
    """The most frequent of those options: the overlay without a suffix."""
    counts = Counter(passes(batch) for batch in batches(recipes, world).values())
    return counts.most_common(1)[0][0] if counts else None


def overlay_name(recipe: Recipe, world: str) -> str:
    """The overlay that runs this recipe on that machine."""
    batch = recipe.batch.on(OVERLAY_GPUS[world])
    usual = usual_passes(recipes_of(recipe.folder), world) == passes(batch)
    return world if usual else f"{world}_{variant(recipe)}"


def overlays(recipes: list[Recipe]) -> dict[str, tuple[Settings, list[str]]]:
    """Overlay name → (settings, what it is for) for the recipes of one corpus."""
    made: dict[str, tuple[Settings, list[str]]] = {}
    for world in OVERLAY_GPUS:
        usual = usual_passes(recipes, world)
        for name, batch in batches(recipes, world).items():
            overlay = world if passes(batch) == usual else f"{world}_{name}"
            _, lines = made.setdefault(overlay, (world_settings(batch, world), []))
            line = f"{name}: {batch.arithmetic()} per update"
            if line not in lines:
                lines.append(line)
    return made


def tiny(recipe: Recipe) -> Settings:
    """Two narrow layers, one process, fp32: finishes on any CPU."""
    width = 64
    model: dict[str, object] = {
        "decoder_layers": 2,
        "decoder_embed_dim": width,
        "decoder_ffn_embed_dim": 2 * width,
        "decoder_attention_heads": 8,
    }
    if "adaptive_input_cutoff" in recipe.options["model"]:
        # The paper's 20,000 and 60,000 are more words than a small text has.
        cutoffs = "100,500"
        model |= {"adaptive_input_cutoff": cutoffs, "adaptive_softmax_cutoff": cutoffs}
    fp16 = {name: False for name in recipe.options["common"] if "fp16" in name}
    return {
        "common": {**fp16, "cpu": True},
        "model": model,
        "distributed_training": {"distributed_world_size": 1},
    }


def shortened(recipe: Recipe, updates: int) -> Settings:
    """A run of ``updates`` updates, with the schedule compressed to them."""
    options: dict[str, Any] = recipe.options["lr_scheduler"]
    warmup = max(1, round(options["warmup_updates"] * updates / recipe.updates))
    schedule: dict[str, object] = {"warmup_updates": warmup}
    if options["_name"] == "cosine":
        schedule["lr_period_updates"] = updates - warmup
    else:
        schedule["total_num_update"] = float(updates)
    return {"optimization": {"max_update": updates}, "lr_scheduler": schedule}


def smoke(recipe: Recipe) -> Settings:
    """A few updates on the CPU: the same code, meaningless results."""
    return merge(
        tiny(recipe),
        shortened(recipe, updates=4),
        {
            "common": {"log_interval": 1},
            "dataset": {"max_tokens": 3072, "max_valid_steps": 1},
            "optimization": {"update_freq": [1]},
        },
    )
