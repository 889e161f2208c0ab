"""The cost of a plan: tokens, V100 hours at the paper's speeds, and disk space."""

from __future__ import annotations

from pathlib import Path

from ..dataprep import bookcorpus, cc100_roberta, wikitext103
from ..dataprep.sources import text_files
from ..recipes import Recipe
from ..recipes.cost import gpu_hours
from .data import Data

#: Bytes per parameter of a checkpoint at most: weights and the optimiser's state, both in fp32.
BYTES = {"nag": 8, "adam": 12}
#: checkpoint_best.pt, checkpoint_last.pt, and the one that is being written.
_CHECKPOINTS = 3


def tokens(recipe: Recipe, updates: int) -> int:
    """Tokens trained on after ``updates`` updates."""
    return updates * recipe.batch.tokens_per_update


def v100_hours(recipe: Recipe, updates: int) -> float | None:
    """Hours of one V100 at the paper's speed; None where the paper gives none."""
    whole = gpu_hours(recipe)
    return whole and whole * updates / recipe.updates


def checkpoint_bytes(recipe: Recipe, kept: int) -> int:
    """Disk that a run takes at most.

    Args:
        kept: models of earlier updates that are kept as well.
    """
    each = recipe.parameters * BYTES[str(recipe.options["optimizer"]["_name"])]
    saves_between = "save_interval_updates" in recipe.options["checkpoint"]
    return each * (_CHECKPOINTS + saves_between + kept)


def preparation_bytes(corpus: str, source: Path | None) -> float:
    """Disk that the preparation of a corpus takes at its peak.

    Args:
        source: None: the paper's corpus.
    """
    if corpus == wikitext103.CORPUS:
        folder = source if source and source.is_dir() else None
        return wikitext103.disk_needed(None if folder else source, folder)
    module = bookcorpus if corpus == bookcorpus.CORPUS else cc100_roberta
    return module.disk_needed(source and text_files(source))


def data_bytes(data: Data) -> float | None:
    """Disk that the data of a corpus takes at its peak.

    Returns:
        None if the text is not known; at the paper's scale it is the paper's.
    """
    source = data.source.path if data.source.path.exists() else None
    if data.scale.excerpt and source is None:
        return None
    excerpt = 4 * sum(data.scale.excerpt.values())  # at most 4 bytes per token
    return preparation_bytes(data.source.corpus, source) + excerpt


def one_after_another(peaks: list[float]) -> float:
    """Disk that several preparations take: each leaves less than half of its peak."""
    return (max(peaks, default=0.0) + sum(peaks)) / 2


def folder_bytes(folder: Path) -> int:
    """Bytes in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
