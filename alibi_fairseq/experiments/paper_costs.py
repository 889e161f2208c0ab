"""The costs of filling tables of the paper: tokens, V100 hours at the paper's speeds, and disk space."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..paper.cost import gpu_hours
from ..paper.recipe import Recipe
from ..paper.scales import PAPER
from ..reporting import markdown
from .paper_data import preparation_bytes

if TYPE_CHECKING:
    from .paper_tables import PaperTables

#: Bytes per parameter of a checkpoint at most: weights and the optimiser's state, both in fp32.
BYTES = {"nag": 8, "adam": 12}
#: checkpoint_best.pt, checkpoint_last.pt, and the one that is being written.
_CHECKPOINTS = 3


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


def one_after_another(peaks: list[float]) -> float:
    """Disk that several preparations take: each leaves less than half of its peak."""
    return (max(peaks, default=0.0) + sum(peaks)) / 2


def cost_table(tables: PaperTables) -> str:
    """Tokens, hours and disk of each run, and their sums, with a sentence on the hours."""
    scale, lines, peaks = tables.scale, [], []
    for data in tables.data.values():
        source = data.source.path if data.source.path.exists() else None
        row = [f"data of {data.source.corpus}", "", "", ""]
        if scale.excerpt and source is None:
            lines.append([*row, "size of the text?"])
            continue
        excerpt = 4 * sum(scale.excerpt.values())  # at most 4 bytes per token
        peaks.append(preparation_bytes(data.source.corpus, source) + excerpt)
        lines.append([*row, gigabytes(peaks[-1])])
    tokens, hours, disk = 0, 0.0, one_after_another(peaks)
    for training in tables.trainings:
        recipe, stops = scale.recipe(training.recipe), tables.stops(training)
        of_run = stops[-1] * recipe.batch.tokens_per_update
        time = v100_hours(recipe, stops[-1]) if scale is PAPER else None
        size = checkpoint_bytes(recipe, len(stops) - 1)
        tokens, hours, disk = tokens + of_run, hours + (time or 0), disk + size
        row = [training.recipe.path, f"{stops[-1]:,}", f"{of_run:,}"]
        lines.append([*row, hours_text(time), gigabytes(size)])
    together = hours_text(hours if scale is PAPER else None)
    lines.append(["together", "", f"{tokens:,}", together, gigabytes(disk)])
    headers = ["", "updates", "tokens trained", "V100 hours", "disk at most"]
    sentence = (
        "V100 hours are tokens at the training speeds the paper measured (Table 1, Figure 7; "
        "1.3B parameters: the hours of Table 12); evaluations come on top. Nothing was run or "
        "written."
        if scale is PAPER
        else f"The scale '{scale.name}' trains other models than the paper, which has no speeds "
        "for them. Disk space for data depends on the text: name it with --corpus. Nothing was run "
        "or written."
    )
    return f"{markdown.table(headers, lines)}\n{sentence}"


def hours_text(hours: float | None) -> str:
    return markdown.NOTHING if hours is None else f"{hours:,.0f}"


def gigabytes(size: float) -> str:
    """At least one digit that is not 0, down to megabytes."""
    return f"{size / 1e9:,.1f} GB" if size >= 5e8 else f"{max(size, 1e6) / 1e6:,.0f} MB"
