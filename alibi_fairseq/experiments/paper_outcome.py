"""The outcome: the paper's tables with our results beside them, under a warning if need be."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

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
from ..reporting import markdown
from ..results.points import method_name
from ..results.schema import load_document
from .paper_tables import PaperTables

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
    groups: dict[tuple, list[Cell]] = defaultdict(list)
    for cell in cells(tables, item):
        groups[cell.subset, cell.stride].append(cell)
    for (subset, stride), members in groups.items():
        cut = "non-overlapping windows" if stride is None else f"sliding windows, S={stride}"
        parts.append(f"Perplexity on {subset}, {cut}:\n\n{grid(members, name)}")
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


def cells(tables: PaperTables, item: str) -> Iterator[Cell]:
    """Every perplexity of the item, with ours from the results."""
    trainings = {each.recipe.path: each for each in tables.trainings}
    printed = printed_by_paper(item)
    for evaluation in asked_for(item):
        training = trainings[evaluation.recipe.path]
        for subset in evaluation.subsets:
            ours = measured(tables, training, evaluation.updates, subset)
            for length in evaluation.lengths:
                stride = evaluation.stride or length
                key = (training.recipe.path, evaluation.updates, subset, length, stride)
                yield Cell(
                    label(training, evaluation.updates),
                    subset,
                    evaluation.stride,
                    length,
                    printed.get(key),
                    ours.get((length, stride)),
                )


def label(training: Training, updates: int) -> str:
    """``ALiBi, L=512``, with the share of the updates where the paper evaluates the run at several."""
    recipe = training.recipe
    name = f"{method_name(recipe.position_method)}, L={recipe.train_length}"
    return name if updates == recipe.updates else f"{name}, {updates / recipe.updates:.1%} trained"


def printed_by_paper(item: str) -> dict[tuple, float]:
    """The paper's perplexities by recipe, updates, split, length and stride."""
    sources, _ = DRAWN.get(item, ((item,), None))
    found = {}
    for source in sources:
        for point in published.points(source):
            recipe = recipe_of(source, point)
            updates = point.updates or recipe.updates
            key = (recipe.path, updates, point.subset, point.length, point.stride)
            if point.perplexity is not None:
                found[key] = point.perplexity
    return found


def measured(
    tables: PaperTables, training: Training, updates: int, subset: str
) -> dict[tuple, float]:
    """Our perplexities of a model on a split by length and stride."""
    run, results = tables.run(training), tables.results(training, subset)
    model = run.model(tables.scale.updates_of(training.recipe, updates))
    found = load_document(results)["cells"] if results.is_file() else []
    return {
        (cell["length"], cell["stride"]): cell["perplexity"]
        for cell in found
        if Path(cell["checkpoint"]).resolve() == model.resolve()
    }


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
