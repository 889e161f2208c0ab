"""A trained model continued at a longer length: the WikiText-103 model of length 512.

Not in the paper. Continuing at the training length as well separates the effect of the length from that
of more training. docs/checkpoints.md shows what came of it in a small model.
"""

from __future__ import annotations

from dataclasses import replace

from . import wikitext103
from .recipe import Batch, Recipe, Settings, merge

FOLDER = "extend"
TITLE = "A trained model at a longer length"

START = wikitext103.recipe("alibi", 512)
UPDATES, WARMUP_UPDATES = wikitext103.UPDATES // 10, wikitext103.WARMUP_UPDATES // 10
PEAK = 0.1  # learning rate
#: 73,728 tokens per update at both lengths; 8 GPUs cannot share 36 sequences of 2048.
BATCHES = (
    Batch(512, sequences=18, update_freq=2, gpus=4),
    Batch(2048, sequences=3, update_freq=3, gpus=4),
)
REASON = "a tenth of the first training's"


def continued(batch: Batch) -> Recipe:
    """The model of ``START`` trained on at the length of a batch."""
    changed: Settings = {
        "optimization": {"lr": [PEAK]},
        "lr_scheduler": {
            "warmup_updates": WARMUP_UPDATES,
            "lr_period_updates": UPDATES - WARMUP_UPDATES,
        },
    }
    reasons = {(group, option): REASON for group in changed for option in changed[group]}
    return replace(
        START,
        folder=FOLDER,
        name=f"{START.name}-at-{batch.length}",
        starts_from=START.path,
        batch=batch,
        updates=UPDATES,
        options=merge(START.options, changed),
        choices={
            **wikitext103.MECHANICS,
            **reasons,
            ("optimization", "max_update"): REASON,
            ("distributed_training", "distributed_world_size"): "4 can share 36 sequences of 2048",
        },
        notes=(
            f"Takes the weights of {START.path} and nothing else; optimizer, learning rate and order "
            "of the data begin anew. Evaluate with and without "
            """--model-overrides '{"alibi_scale": "dynamic"}' (docs/checkpoints.md).""",
        ),
    )


def recipes() -> list[Recipe]:
    return [continued(batch) for batch in BATCHES]
