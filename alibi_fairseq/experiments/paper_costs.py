"""What filling tables of the paper costs: tokens, V100 hours at the paper's speeds, and disk space."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..paper.cost import gpu_hours
from ..paper.recipe import Recipe
from ..paper.scales import PAPER
from ..paper.tables import Training
from ..reporting import markdown
from .paper_data import Data

if TYPE_CHECKING:
    from .paper_tables import PaperTables

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


def data_bytes(data: Data) -> float | None:
    """Disk that the data of a corpus takes at its peak.

    Returns:
        None if the text is not known; at the paper's scale it is the paper's.
    """
    if data.scale.excerpt and not data.source.path.exists():
        return None
    # At most 4 bytes per token of the excerpt.
    return data.disk_needed + 4 * sum(data.scale.excerpt.values())


def one_after_another(peaks: list[float]) -> float:
    """Disk that several preparations take: each leaves less than half of its peak."""
    return (max(peaks, default=0.0) + sum(peaks)) / 2


def folder_bytes(folder: Path) -> int:
    """Bytes in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def cost_table(tables: PaperTables) -> str:
    """Tokens, hours and disk of each run, and their sums."""
    lines, peaks = [], []
    for data in tables.data.values():
        disk = data_bytes(data)
        peaks.append(disk or 0.0)
        name = f"data of {data.source.corpus}"
        lines.append([name, "", "", "", gigabytes(disk) if disk else "size of the text?"])
    sums = [0.0, 0.0, one_after_another(peaks)]
    for training in tables.trainings:
        tokens, hours, disk = cost_of(tables, training)
        sums = [total + more for total, more in zip(sums, (tokens, hours or 0, disk))]
        updates = f"{tables.stops(training)[-1]:,}"
        lines.append(
            [training.recipe.path, updates, f"{tokens:,}", hours_text(hours), gigabytes(disk)]
        )
    total_hours = sums[1] if tables.scale is PAPER else None
    lines.append(["together", "", f"{sums[0]:,.0f}", hours_text(total_hours), gigabytes(sums[2])])
    headers = ["", "updates", "tokens trained", "V100 hours", "disk at most"]
    return markdown.table(headers, lines)


def cost_of(tables: PaperTables, training: Training) -> tuple[int, float | None, int]:
    """Tokens trained on, V100 hours, bytes on disk at most."""
    recipe, stops = tables.scale.recipe(training.recipe), tables.stops(training)
    hours = v100_hours(recipe, stops[-1]) if tables.scale is PAPER else None
    return (
        tokens(recipe, stops[-1]),
        hours,
        checkpoint_bytes(recipe, len(stops) - 1),
    )


def hours_text(hours: float | None) -> str:
    return markdown.NOTHING if hours is None else f"{hours:,.0f}"


def gigabytes(size: float) -> str:
    """At least one digit that is not 0, down to megabytes."""
    return f"{size / 1e9:,.1f} GB" if size >= 5e8 else f"{max(size, 1e6) / 1e6:,.0f} MB"


def explanation(tables: PaperTables) -> str:
    """How the hours were computed."""
    if tables.scale is PAPER:
        return (
            "V100 hours are tokens at the training speeds the paper measured (Table 1, Figure 7; "
            "1.3B parameters: the hours of Table 12); evaluations come on top. Nothing was run or "
            "written."
        )
    return (
        f"The scale '{tables.scale.name}' trains other models than the paper, which has no speeds "
        "for them. Disk space for data depends on the text: name it with --corpus. Nothing was run "
        "or written."
    )
