"""The outcome: the paper's tables with our results beside them, under a warning if need be."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..files import atomic_write
from ..paper import published
from ..paper.recipe import PAPER
from ..paper.tables import (
    DRAWN,
    Evaluation,
    asked_for,
    curve_evaluations,
    paper_name,
    recipe_of,
    title,
    why_no_training,
)
from ..reporting.markdown import NOTHING
from ..reporting.paper_tables import perplexity_grid, rows_beside
from ..results.points import Point, document_points, model_label
from ..results.schema import load_document

if TYPE_CHECKING:
    from .paper_tables import PaperTables

#: Everything that the paper numbers.
NUMBERED = (
    *(f"table{number:02d}" for number in range(1, 16)),
    *(f"figure{number:02d}" for number in range(1, 12)),
)


def print_outcome(tables: PaperTables, items: tuple[str, ...]) -> None:
    """Write and print each table with the path of its file, and the report's."""
    for item in items:
        path, text = tables.page.parent / f"{tables.scale.name}-{item}.md", beside(tables, item)
        with atomic_write(path) as stream:
            stream.write(text)
        print(f"\n{text}\n({path})")
    print(f"\nThe report with all tables and figures: {tables.page}")


def is_replication(tables: PaperTables, item: str) -> bool:
    """Whether these are the paper's runs on the paper's text."""
    corpora = {evaluation.recipe.corpus for evaluation in asked_for(item)}
    return tables.scale is PAPER and all(tables.data[corpus].genuine for corpus in corpora)


def beside(tables: PaperTables, item: str) -> str:
    """The item as Markdown, one table per split and stride."""
    scale, parts, name = tables.scale, [f"# {title(item)}\n"], "ours"
    if not is_replication(tables, item):
        name = f"ours ({scale.name})"
        corpora = {evaluation.recipe.corpus for evaluation in asked_for(item)}
        texts = ", ".join(sorted(tables.data[corpus].text for corpus in corpora))
        parts.append(
            f"**Not a replication.** Ours: {scale.caveat} (scale '{scale.name}', text '{texts}'). "
            "The paper's numbers stand beside them for orientation only.\n"
        )
    ours = [point for evaluation in asked_for(item) for point in measured(tables, evaluation)]
    groups: dict[tuple[str, int | None], list[Point]] = defaultdict(list)
    for point in printed(item):
        groups[point.subset, None if point.nonoverlapping else point.stride].append(point)
    for (subset, stride), points in groups.items():
        cut = "non-overlapping windows" if stride is None else f"sliding windows, S={stride}"
        rows = rows_beside(points, ours, join_diagonal=False, label=partial(label, item))
        columns = sorted({point.length for point in points})
        table = perplexity_grid(rows, columns, name)
        parts.append(f"Perplexity on {subset}, {cut}:\n\n{table}")
    return "\n".join(parts)


def printed(item: str) -> list[Point]:
    """The paper's points of an item, and without perplexity the evaluations behind its curves."""
    sources, methods = DRAWN.get(item, ((item,), None))
    found = [
        replace(point, updates=point.updates or recipe_of(source, point).updates, status=NOTHING)
        for source in sources
        for point in published.points(source)
        if methods is None or point.position_method in methods
    ]
    for each in curve_evaluations() if item == "figure05" else ():
        model = (each.recipe.position_method, each.recipe.train_length)
        for length in each.lengths:
            point = Point(*model, length, length, each.subset, updates=each.updates, status=NOTHING)
            if not any(replace(other, perplexity=None) == point for other in found):
                found.append(point)
    return found


def label(item: str, point: Point) -> str:
    """``ALiBi, L=512``, with the share of the updates where the paper evaluates the run at several."""
    sources, _ = DRAWN.get(item, ((item,), None))
    share = (point.updates or 0) / recipe_of(sources[0], point).updates
    name = model_label(point.position_method, point.train_length)
    return name if share == 1 else f"{name}, {share:.1%} trained"


def measured(tables: PaperTables, evaluation: Evaluation) -> Iterator[Point]:
    """Our perplexities of an evaluation, as those of the paper's model after its number of updates."""
    training = next(each for each in tables.trainings if each.recipe.path == evaluation.recipe.path)
    updates = tables.scale.updates_of(training.recipe, evaluation.updates)
    model = tables.run(training).model(updates).resolve()
    results = tables.results(training, evaluation.subset)
    for point in document_points(*([load_document(results)] if results.is_file() else [])):
        if Path(point.checkpoint or "").resolve() == model:
            yield replace(
                point,
                position_method=evaluation.recipe.position_method,
                train_length=evaluation.recipe.train_length,
                updates=evaluation.updates,
            )


def write_overview(tables: PaperTables, items: tuple[str, ...]) -> Path:
    """Write the page of all tables and figures, of which ``items`` were made."""
    scale = tables.scale
    parts = [f"# The paper's tables and figures at the scale '{scale.name}'", f"{scale.caveat}."]
    for item in NUMBERED:
        if item in items:
            heading, _, body = beside(tables, item).partition("\n")
            drawn = "" if item not in DRAWN else "The numbers that the figure draws.\n\n"
            parts.append(f"#{heading}\n\n{drawn}{body.strip()}")
        else:
            parts.append(f"## {paper_name(item)}\n\n{why_no_training(item)}")
    path = tables.page.with_name(f"{scale.name}.md")
    with atomic_write(path) as stream:
        stream.write("\n\n".join(parts) + "\n")
    return path
