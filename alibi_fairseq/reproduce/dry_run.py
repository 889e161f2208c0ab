"""The commands of a plan and their cost."""

from __future__ import annotations

from collections.abc import Iterator

from ..reporting import markdown
from ..workflow import Command, Step
from . import costs
from .pipeline import Pipeline
from .plan import Run
from .scales import PAPER


def describe(pipeline: Pipeline) -> str:
    """Every command in its order, and a table of tokens, V100 hours and disk."""
    parts = list(commands(pipeline))
    parts.append("\n" + cost_table(pipeline))
    parts.append(explanation(pipeline))
    return "\n".join(parts)


def commands(pipeline: Pipeline) -> Iterator[str]:
    """The commands, each run's under its name."""
    for data in pipeline.data.values():
        yield f"# {data.source.corpus}"
        for step in data.steps():
            yield _line(step)
    for number, run in enumerate(pipeline.runs, 1):
        yield f"# [{number}/{len(pipeline.runs)}] {run.recipe.path}"
        for step in pipeline.steps(run):
            yield _line(step)
    yield "# report"
    yield _line(pipeline.report())


def _line(step: Step) -> str:
    return step.work.line if isinstance(step.work, Command) else f"# {step.title}"


def cost_table(pipeline: Pipeline) -> str:
    """Tokens, hours and disk of each run, and their sums."""
    lines, peaks = [], []
    for data in pipeline.data.values():
        disk = costs.data_bytes(data)
        peaks.append(disk or 0.0)
        name = f"data of {data.source.corpus}"
        lines.append([name, "", "", "", gigabytes(disk) if disk else "size of the text?"])
    sums = [0.0, 0.0, costs.one_after_another(peaks)]
    for run in pipeline.runs:
        tokens, hours, disk = cost_of(pipeline, run)
        sums = [total + more for total, more in zip(sums, (tokens, hours or 0, disk))]
        updates = f"{pipeline.stops(run)[-1]:,}"
        lines.append([run.recipe.path, updates, f"{tokens:,}", hours_text(hours), gigabytes(disk)])
    total_hours = sums[1] if pipeline.scale is PAPER else None
    lines.append(["together", "", f"{sums[0]:,.0f}", hours_text(total_hours), gigabytes(sums[2])])
    headers = ["", "updates", "tokens trained", "V100 hours", "disk at most"]
    return markdown.table(headers, lines)


def cost_of(pipeline: Pipeline, run: Run) -> tuple[int, float | None, int]:
    """Tokens trained on, V100 hours, bytes on disk at most."""
    recipe, stops = pipeline.training(run).recipe, pipeline.stops(run)
    hours = costs.v100_hours(recipe, stops[-1]) if pipeline.scale is PAPER else None
    return (
        costs.tokens(recipe, stops[-1]),
        hours,
        costs.checkpoint_bytes(recipe, len(stops) - 1),
    )


def hours_text(hours: float | None) -> str:
    return markdown.NOTHING if hours is None else f"{hours:,.0f}"


def gigabytes(size: float) -> str:
    """At least one digit that is not 0, down to megabytes."""
    return f"{size / 1e9:,.1f} GB" if size >= 5e8 else f"{max(size, 1e6) / 1e6:,.0f} MB"


def explanation(pipeline: Pipeline) -> str:
    """How the hours were computed."""
    if pipeline.scale is PAPER:
        return (
            "V100 hours are tokens at the training speeds the paper measured (Table 1, Figure 7; "
            "1.3B parameters: the hours of Table 12); evaluations come on top. Nothing was run or "
            "written."
        )
    return (
        f"The scale '{pipeline.scale.name}' trains other models than the paper, which has no speeds "
        "for them. Disk space for data depends on the text: name it with --corpus. Nothing was run "
        "or written."
    )
