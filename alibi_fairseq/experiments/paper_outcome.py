"""The outcome: the paper's tables with our results beside them, under a warning if need be."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from ..files import atomic_write
from ..paper import published
from ..paper.scales import PAPER
from ..paper.tables import (
    DIAGRAMS,
    DRAWN,
    SPEED,
    SPEED_COMMAND,
    Training,
    asked_for,
    paper_name,
    title,
)
from ..paper.targets import recipe_of
from ..reporting import comparison
from ..reporting.comparison import Row
from ..results.points import Point, document_points, model_label
from ..results.schema import load_document
from .paper_tables import PaperTables


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
    text = beside(tables, item)
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        with atomic_write(path) as stream:
            stream.write(text)
    return path


def is_replication(tables: PaperTables, item: str) -> bool:
    """Whether these are the paper's runs on the paper's text."""
    corpora = {evaluation.recipe.corpus.name for evaluation in asked_for(item)}
    return tables.scale is PAPER and all(tables.data[corpus].genuine for corpus in corpora)


def beside(tables: PaperTables, item: str) -> str:
    """The item as Markdown, one table per split and stride."""
    name = "ours" if is_replication(tables, item) else f"ours ({tables.scale.name})"
    parts = [f"# {title(item)}\n", *warning(tables, item)]
    for (subset, stride), rows in rows_of(tables, item).items():
        cut = "non-overlapping windows" if stride is None else f"sliding windows, S={stride}"
        columns = sorted({n for row in rows for n in (*row.paper, *row.ours[""])})
        table = comparison.grid(comparison.lines(rows, columns, name), columns)
        parts.append(f"Perplexity on {subset}, {cut}:\n\n{table}")
    return "\n".join(parts)


def warning(tables: PaperTables, item: str) -> list[str]:
    """Why this is not a replication; empty if it is one."""
    if is_replication(tables, item):
        return []
    corpora = {evaluation.recipe.corpus.name for evaluation in asked_for(item)}
    texts = ", ".join(sorted(tables.data[corpus].text for corpus in corpora))
    scale = tables.scale
    return [
        f"**Not a replication.** Ours: {scale.caveat} (scale '{scale.name}', text '{texts}'). The "
        "paper's numbers stand beside them for orientation only.\n"
    ]


def rows_of(tables: PaperTables, item: str) -> dict[tuple, list[Row]]:
    """The item's models by split and stride, each with the paper's perplexities and ours by length."""
    trainings = {each.recipe.path: each for each in tables.trainings}
    printed = printed_by_paper(item)
    found: dict[tuple, dict[str, Row]] = defaultdict(dict)
    for evaluation in asked_for(item):
        training, updates = trainings[evaluation.recipe.path], evaluation.updates
        for subset in evaluation.subsets:
            ours = measured(tables, training, updates, subset)
            name = label(training, updates)
            rows = found[subset, evaluation.stride]
            row = rows.setdefault(name, Row(name, {}, {"": {}}))
            for length in evaluation.lengths:
                case = (length, evaluation.stride or length)
                key = (training.recipe.path, updates, subset, *case)
                row.paper.update({length: printed[key]} if key in printed else {})
                row.ours[""].update({length: ours[case]} if case in ours else {})
    return {case: list(rows.values()) for case, rows in found.items()}


def label(training: Training, updates: int) -> str:
    """``ALiBi, L=512``, with the share of the updates where the paper evaluates the run at several."""
    recipe = training.recipe
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


#: Everything that the paper numbers.
NUMBERED = tuple(
    f"{kind}{number:02d}"
    for kind, last in (("table", 15), ("figure", 11))
    for number in range(1, last + 1)
)


def write_overview(tables: PaperTables, items: tuple[str, ...]) -> Path:
    """Write the page.

    Args:
        items: those that were made.
    """
    scale = tables.scale
    parts = [f"# The paper's tables and figures at the scale '{scale.name}'", f"{scale.caveat}."]
    parts += [section(tables, item, item in items) for item in NUMBERED]
    path = tables.page.with_name(f"{scale.name}.md")
    with atomic_write(path) as stream:
        stream.write("\n\n".join(parts) + "\n")
    return path


def section(tables: PaperTables, item: str, made: bool) -> str:
    """An item under its heading."""
    if made:
        heading, _, body = table_of(tables, item).read_text(encoding="utf-8").partition("\n")
        drawn = "" if item not in DRAWN else "The numbers that the figure draws.\n\n"
        return f"#{heading}\n\n{drawn}{body.strip()}"
    return f"## {paper_name(item)}\n\n{why_none(item)}"


def why_none(item: str) -> str:
    """Why there is no number of ours."""
    if item in DIAGRAMS:
        return f"A diagram of {DIAGRAMS[item]}: it holds no data."
    if item in SPEED:
        return (
            "Speed and memory of models of the paper's size, untrained: a model of another size cannot "
            f"stand beside them. `{SPEED_COMMAND}` measures them on a GPU."
        )
    return "Not asked for."
