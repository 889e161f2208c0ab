"""The costs of filling tables of the paper: tokens, V100 hours at the paper's speeds, and disk space."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..paper import published
from ..paper.recipe import Recipe
from ..paper.scales import PAPER, Scale
from ..reporting import markdown
from .paper_data import preparation_bytes

if TYPE_CHECKING:
    from .paper_tables import PaperTables

#: Bytes per parameter of a checkpoint at most: weights and the optimiser's state, both in fp32.
BYTES = {"nag": 8, "adam": 12}
#: checkpoint_best.pt, checkpoint_last.pt, and the one that is being written.
_CHECKPOINTS = 3


def v100_hours(recipe: Recipe, updates: int) -> float | None:
    """Hours of one V100: as Table 12 states them, or tokens at the paper's speed; None without one."""
    model = (recipe.position_method, recipe.train_length)

    def found(item: str, column: str) -> int | None:
        rows = {(row["position_method"], row["train_length"]): row for row in published.rows(item)}
        return rows[model][column] if model in rows else None

    if published.about("table12")["corpus"] == recipe.corpus and (
        hours := found("table12", "gpu_hours")
    ):
        return hours * updates / recipe.updates
    # Figure 7 has all lengths, Table 1 all methods; both were measured on WikiText-103.
    column = "train_words_per_second"
    speed = found("figure07", column) or found("table01", column)
    return speed and updates * recipe.batch.tokens_per_update / speed / 3600


def checkpoint_bytes(scale: Scale, recipe: Recipe, kept: int) -> int:
    """Disk that a run takes at most.

    Args:
        recipe: the paper's.
        kept: models of earlier updates that are kept as well.
    """
    options = scale.recipe(recipe).options
    each = scale.parameters(recipe) * BYTES[str(options["optimizer"]["_name"])]
    return each * (_CHECKPOINTS + ("save_interval_updates" in options["checkpoint"]) + kept)


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
        size = checkpoint_bytes(scale, training.recipe, len(stops) - 1)
        tokens, hours, disk = tokens + of_run, hours + (time or 0), disk + size
        shown = markdown.NOTHING if time is None else f"{time:,.0f}"
        row = [training.recipe.path, f"{stops[-1]:,}", f"{of_run:,}", shown]
        lines.append([*row, gigabytes(size)])
    together = f"{hours:,.0f}" if scale is PAPER else markdown.NOTHING
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


def gigabytes(size: float) -> str:
    """At least one digit that is not 0, down to megabytes."""
    return f"{size / 1e9:,.1f} GB" if size >= 5e8 else f"{max(size, 1e6) / 1e6:,.0f} MB"
