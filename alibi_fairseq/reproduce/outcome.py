"""The outcome: the paper's tables with our results beside them, under a warning if need be."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ..files import atomic_write
from ..recipes.targets import recipe_of
from ..reporting import markdown, paper
from ..results.points import method_name
from .evaluations import cells_of
from .pipeline import Pipeline
from .plan import DRAWN, Run, asked_for, title
from .scales import PAPER

#: Tables with more lengths than this have them as rows instead of columns.
_MOST_COLUMNS = 8


class Cell(NamedTuple):
    """A perplexity of the paper and ours; None if missing."""

    model: str
    subset: str
    stride: int | None
    length: int
    printed: float | None
    ours: float | None


def print_outcome(pipeline: Pipeline, items: tuple[str, ...]) -> None:
    """Print each table with the path of its file, and the report's."""
    for item in items:
        path = table_of(pipeline, item)
        print(f"\n{path.read_text(encoding='utf-8')}\n({path})")
    print(f"\nThe report with all tables and figures: {pipeline.page}")


def table_of(pipeline: Pipeline, item: str) -> Path:
    """The file of an item's table: that of the report for a replication, otherwise one written here
    whose rows say at which scale ours were measured.
    """
    in_report = pipeline.page.parent / "tables" / f"{item}.md"
    if is_replication(pipeline, item) and in_report.is_file():
        return in_report
    path = pipeline.page.parent / f"{pipeline.scale.name}-{item}.md"
    text = beside(pipeline, item)
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        with atomic_write(path) as stream:
            stream.write(text)
    return path


def is_replication(pipeline: Pipeline, item: str) -> bool:
    """Whether these are the paper's runs on the paper's text."""
    corpora = {evaluation.recipe.corpus.name for evaluation in asked_for(item)}
    return pipeline.scale is PAPER and all(pipeline.data[corpus].genuine for corpus in corpora)


def beside(pipeline: Pipeline, item: str) -> str:
    """The item as Markdown, one table per split and stride."""
    name = "ours" if is_replication(pipeline, item) else f"ours ({pipeline.scale.name})"
    parts = [f"# {title(item)}\n", *warning(pipeline, item)]
    groups: dict[tuple, list[Cell]] = defaultdict(list)
    for cell in cells(pipeline, item):
        groups[cell.subset, cell.stride].append(cell)
    for (subset, stride), members in groups.items():
        cut = "non-overlapping windows" if stride is None else f"sliding windows, S={stride}"
        parts.append(f"Perplexity on {subset}, {cut}:\n\n{grid(members, name)}")
    return "\n".join(parts)


def warning(pipeline: Pipeline, item: str) -> list[str]:
    """Why this is not a replication; empty if it is one."""
    if is_replication(pipeline, item):
        return []
    corpora = {evaluation.recipe.corpus.name for evaluation in asked_for(item)}
    texts = ", ".join(sorted(pipeline.data[corpus].text for corpus in corpora))
    scale = pipeline.scale
    return [
        f"**Not a replication.** Ours: {scale.worth} (scale '{scale.name}', text '{texts}'). The "
        "paper's numbers stand beside them for orientation only.\n"
    ]


def cells(pipeline: Pipeline, item: str) -> Iterator[Cell]:
    """Every perplexity of the item, with ours from the results."""
    runs = {run.recipe.path: run for run in pipeline.runs}
    printed = printed_by_paper(item)
    for evaluation in asked_for(item):
        run = runs[evaluation.recipe.path]
        for subset in evaluation.subsets:
            ours = measured(pipeline, run, evaluation.updates, subset)
            for length in evaluation.lengths:
                stride = evaluation.stride or length
                key = (run.recipe.path, evaluation.updates, subset, length, stride)
                yield Cell(
                    label(run, evaluation.updates),
                    subset,
                    evaluation.stride,
                    length,
                    printed.get(key),
                    ours.get((length, stride)),
                )


def label(run: Run, updates: int) -> str:
    """``ALiBi, L=512``, with the share of the updates where the paper evaluates the run at several."""
    recipe = run.recipe
    name = f"{method_name(recipe.position_method)}, L={recipe.train_length}"
    return name if updates == recipe.updates else f"{name}, {updates / recipe.updates:.1%} trained"


def printed_by_paper(item: str) -> dict[tuple, float]:
    """The paper's perplexities by recipe, updates, split, length and stride."""
    sources, _ = DRAWN.get(item, ((item,), None))
    found = {}
    for source in sources:
        for point in paper.points(source):
            recipe = recipe_of(source, point)
            updates = point.updates or recipe.updates
            key = (recipe.path, updates, point.subset, point.length, point.stride)
            if point.perplexity is not None:
                found[key] = point.perplexity
    return found


def measured(pipeline: Pipeline, run: Run, updates: int, subset: str) -> dict[tuple, float]:
    """Our perplexities of a model on a split by length and stride."""
    model = pipeline.training(run).model(pipeline.scale.updates_of(run.recipe, updates))
    found = cells_of(pipeline.results(run, subset), model)
    return {(cell["length"], cell["stride"]): cell["perplexity"] for cell in found}


def grid(members: list[Cell], name: str) -> str:
    """Two lines per model with lengths as columns, or two columns per model with lengths as rows."""
    lengths = sorted({cell.length for cell in members})
    models = list(dict.fromkeys(cell.model for cell in members))
    at = {(cell.model, cell.length): cell for cell in members}
    series = [
        (model, who, [cell_text(at.get((model, length)), ours) for length in lengths])
        for model in models
        for who, ours in (("paper", False), (name, True))
    ]
    if len(lengths) <= _MOST_COLUMNS:
        rows = [["" if who == name else model, who, *values] for model, who, values in series]
        return markdown.table(["trained ↓ evaluated at →", "", *map(str, lengths)], rows, left=2)
    headers = ["length", *(f"{model}: {who}" for model, who, _ in series)]
    columns = [list(map(str, lengths)), *(values for _, _, values in series)]
    return markdown.table(headers, [list(row) for row in zip(*columns)])


def cell_text(cell: Cell | None, ours: bool) -> str:
    if cell is None:
        return markdown.NOTHING
    value = cell.ours if ours else cell.printed
    if value is None:
        return markdown.MISSING if ours else markdown.NOTHING
    return markdown.perplexity(value)
