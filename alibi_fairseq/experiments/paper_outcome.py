"""The outcome: the paper's tables with our results beside them, under a warning if need be."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from ..files import atomic_write
from ..paper import published
from ..paper.recipe import PAPER
from ..paper.tables import (
    DRAWN,
    Evaluation,
    Training,
    asked_for,
    paper_name,
    recipe_of,
    title,
    why_no_training,
)
from ..reporting import comparison
from ..reporting.comparison import Row
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
    """Print each table with the path of its file, and the report's."""
    for item in items:
        path = table_of(tables, item)
        print(f"\n{path.read_text(encoding='utf-8')}\n({path})")
    print(f"\nThe report with all tables and figures: {tables.page}")


def table_of(tables: PaperTables, item: str) -> Path:
    """The file of an item's table: that of the report for a replication, otherwise one written here
    whose rows say at which scale ours were measured.
    """
    in_report = tables.page.parent / "tables" / f"{item}.md"
    if is_replication(tables, item) and in_report.is_file():
        return in_report
    path = tables.page.parent / f"{tables.scale.name}-{item}.md"
    with atomic_write(path) as stream:
        stream.write(beside(tables, item))
    return path


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
    for (subset, stride), rows in rows_of(tables, item).items():
        cut = "non-overlapping windows" if stride is None else f"sliding windows, S={stride}"
        columns = sorted({n for row in rows for n in (*row.paper, *row.ours[""])})
        table = comparison.grid(comparison.lines(rows, columns, name), columns)
        parts.append(f"Perplexity on {subset}, {cut}:\n\n{table}")
    return "\n".join(parts)


def rows_of(tables: PaperTables, item: str) -> dict[tuple, list[Row]]:
    """The item's models by split and stride, each with the paper's perplexities and ours by length."""
    trainings = {each.recipe.path: each for each in tables.trainings}
    printed = printed_by_paper(item)
    found: dict[tuple, dict[str, Row]] = defaultdict(dict)
    for evaluation in asked_for(item):
        training, updates = trainings[evaluation.recipe.path], evaluation.updates
        ours = measured(tables, training, updates, evaluation.subset)
        name = label(evaluation)
        row = found[evaluation.subset, evaluation.stride].setdefault(name, Row(name, {}, {"": {}}))
        for length in evaluation.lengths:
            case = (length, evaluation.stride or length)
            key = (training.recipe.path, updates, evaluation.subset, *case)
            row.paper.update({length: printed[key]} if key in printed else {})
            row.ours[""].update({length: ours[case]} if case in ours else {})
    return {case: list(rows.values()) for case, rows in found.items()}


def label(evaluation: Evaluation) -> str:
    """``ALiBi, L=512``, with the share of the updates where the paper evaluates the run at several."""
    recipe, updates = evaluation.recipe, evaluation.updates
    name = model_label(recipe.position_method, recipe.train_length)
    return name if updates == recipe.updates else f"{name}, {updates / recipe.updates:.1%} trained"


def printed_by_paper(item: str) -> dict[tuple, Point]:
    """The paper's perplexities by recipe, updates, split, length and stride."""
    sources, _ = DRAWN.get(item, ((item,), None))
    found = {}
    for source in sources:
        for point in published.points(source):
            recipe = recipe_of(source, point)
            updates = point.updates or recipe.updates
            key = (recipe.path, updates, point.subset, point.length, point.stride)
            if point.perplexity is not None:
                found[key] = point
    return found


def measured(
    tables: PaperTables, training: Training, updates: int, subset: str
) -> dict[tuple, Point]:
    """Our perplexities of a model on a split by length and stride."""
    run, results = tables.run(training), tables.results(training, subset)
    model = run.model(tables.scale.updates_of(training.recipe, updates))
    documents = [load_document(results)] if results.is_file() else []
    return {
        (point.length, point.stride): point
        for point in document_points(*documents)
        if Path(point.checkpoint or "").resolve() == model.resolve()
    }


def write_overview(tables: PaperTables, items: tuple[str, ...]) -> Path:
    """Write the page of all tables and figures, of which ``items`` were made."""
    scale = tables.scale
    parts = [f"# The paper's tables and figures at the scale '{scale.name}'", f"{scale.caveat}."]
    for item in NUMBERED:
        if item in items:
            heading, _, body = table_of(tables, item).read_text(encoding="utf-8").partition("\n")
            drawn = "" if item not in DRAWN else "The numbers that the figure draws.\n\n"
            parts.append(f"#{heading}\n\n{drawn}{body.strip()}")
        else:
            parts.append(f"## {paper_name(item)}\n\n{why_no_training(item)}")
    path = tables.page.with_name(f"{scale.name}.md")
    with atomic_write(path) as stream:
        stream.write("\n\n".join(parts) + "\n")
    return path
