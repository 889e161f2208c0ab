"""The paper's tables with our numbers next to them.

A table of the paper becomes rows (:mod:`.table_rows`), one per model. A grid has several lines per
row: the paper's numbers, ours, and their difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from alibi_fairseq.paper import published
from alibi_fairseq.paper.report_data import ReportData
from alibi_fairseq.paper.seed_noise import difference, legend
from alibi_fairseq.paper.speed_table import speed_table
from alibi_fairseq.paper.table_rows import Row, has_update_count, table_rows
from alibi_fairseq.reporting import markdown
from alibi_fairseq.results.labels import model_label
from alibi_fairseq.results.measurements import Measurement
from alibi_fairseq.results.model_groups import Series

#: Tables of perplexity and evaluation speed by evaluation length.
SWEEPS = ("table02", "table03", "table04")
#: Tables of perplexity on the validation and the test split.
TEST_SETS = ("table06", "table07", "table09", "table10")
#: Tables with one row for all models of a method, each evaluated at its training length. Only ALiBi
#: has a row per model.
JOINED = ("table05", "table08")
_LARGE_COSTS = {"memory": "train_memory_gb", "updates": "updates", "GPU hours": "gpu_hours"}
#: Training costs by table: column title → key in the paper's data.
COSTS = {
    "table06": {"training speed": "train_words_per_second"},
    "table11": _LARGE_COSTS,
    "table12": _LARGE_COSTS,
}
#: Tables of perplexities.
PERPLEXITY_TABLES = tuple(f"table{number:02d}" for number in range(2, 16))
#: All tables of the paper, in its order.
TABLES = ("table01", *PERPLEXITY_TABLES)

#: Attribute of a measurement by kind of evaluation speed. The paper has only the first.
_SPEED_ATTRIBUTES = {"batch 1": "tokens_per_second_batch_1", "full batches": "tokens_per_second"}
#: Largest number of columns. Grids with more are transposed.
_MAX_COLUMNS = 8


def table(item: str, results: ReportData) -> str:
    """Format one of Tables 1–15 as Markdown, e.g. ``table05``; without results, ours are missing.

    Each model has a line of the paper's numbers, one of ours, and one of their difference. Columns
    are evaluation lengths, or the validation and the test split.
    """
    if item == "table01":
        return speed_table(results.speeds())
    corpus = published.about(item)["corpus"]
    printed = published.points(item)
    ours = results.comparable(corpus)
    rows = table_rows(printed, ours, joined=item in JOINED)
    columns: Sequence = sorted({point.length for point in printed})
    if item in TEST_SETS:
        columns = ("valid", "test")
        rows = _with_other_authors(item, rows)
    parts = [perplexity_grid(rows, columns, corpus=corpus)]
    if item in COSTS:
        parts.append(
            "Training: the paper on V100s, speed in words; ours on the machine named in the "
            "sources, in tokens:\n"
        )
        parts.append(_cost_grid(item, rows, results.trainings(corpus)))
    if item in SWEEPS or item == "table06":
        parts.append(
            "Speed of evaluation in tokens per second (the paper: words, one V100, batch size 1; "
            "ours: the machine named in the sources):\n"
        )
        parts.append(_speed_grid(rows, columns if item in SWEEPS else ("valid",)))
    parts.append(legend(corpus) + "\n")
    reasons = dict.fromkeys(point.other_text for point in ours if point.other_text)
    if reasons:
        parts.append(
            f"No verdicts: {'; '.join(reasons)}, so perplexities per token are in other units "
            "than the paper's.\n"
        )
    return "\n".join(parts)


def _with_other_authors(item: str, rows: list[Row]) -> list[Row]:
    """Insert the rows of models by other authors, in the paper's order."""
    row_by_model = {}
    for row in rows:
        for point in row.paper.points:
            row_by_model[point.position_method, point.train_length] = row
    all_rows = []
    for printed in published.rows(item):
        model = (printed["position_method"], printed["train_length"])
        all_rows.append(row_by_model.get(model) or _row_as_printed(printed))
    return all_rows


def _row_as_printed(printed: dict) -> Row:
    """Create the row of a model by other authors."""
    points = []
    for subset in ("valid", "test"):
        perplexity = printed[f"{subset}_perplexity"]
        if perplexity:
            points.append(Measurement("", 0, 0, 0, subset, perplexity))
    return Row(Series("", None, points, f"{printed['model']} (as printed)"))


class GridLine(NamedTuple):
    """A line of a grid: a model, the source of its numbers, and a text per column."""

    model: str
    source: str
    cells: list[str]


def _grid(lines: list[GridLine], columns: Sequence, corner: str = markdown.CORNER) -> str:
    """Format lines in Markdown, each under the name of its model.

    A grid of many columns is transposed.
    """
    if len(columns) > _MAX_COLUMNS:
        headers = ["length", *(f"{line.model}: {line.source}" for line in lines)]
        values = zip(map(str, columns), *(line.cells for line in lines), strict=True)
        return markdown.table(headers, [list(row) for row in values])
    rows = []
    previous = ""
    for line in lines:
        name = line.model if line.model != previous else ""
        rows.append([name, line.source, *line.cells])
        previous = line.model
    return markdown.table([corner, "", *map(str, columns)], rows, left=2)


class Side(NamedTuple):
    """One side of a row: the paper's numbers of a model, or ours.

    Attributes:
        source: ``paper``, or the name of our numbers.
        series: measurements of this side.
        printed: the paper's measurements of the model.
    """

    source: str
    series: Series
    printed: Series

    @property
    def is_paper(self) -> bool:
        """True for the paper's own numbers."""
        return self.source == "paper"


def _sides(rows: Iterable[Row], name: str = "ours") -> Iterator[Side]:
    """Yield the paper's side of each row, then ours, one per variant of the model.

    Our side is empty if nothing has been measured. Models by other authors have only the paper's.

    Args:
        rows: the models.
        name: source of our numbers.
    """
    nothing_measured = Series("", None, ())
    for row in rows:
        yield Side("paper", row.paper, row.paper)
        is_by_other_authors = not row.paper.position_method
        if is_by_other_authors:
            continue
        for series in row.ours or [nothing_measured]:
            source = f"{name} ({series.variant})" if series.variant else name
            yield Side(source, series, row.paper)


def _by_column(series: Series, columns: Sequence) -> list[Measurement | None]:
    """Return the measurement of each column, which is an evaluation length or a split."""
    points: dict[int | str, Measurement] = {}
    for point in series.points:
        points[point.length] = point
        points[point.subset] = point
    return [points.get(column) for column in columns]


def perplexity_grid(
    rows: Iterable[Row], columns: Sequence, name: str = "ours", corpus: str | None = None
) -> str:
    """Format the paper's perplexities and ours, which are missing only where the paper has one.

    Args:
        rows: the models.
        columns: evaluation lengths or splits.
        name: source of our numbers.
        corpus: corpus of the paper, to add lines of differences.
    """
    lines: list[GridLine] = []
    our_points: list[Measurement] = []
    for side in _sides(rows, name):
        points = _by_column(side.series, columns)
        printed = _by_column(side.printed, columns)
        cells = []
        differences = []
        for point, printed_point in zip(points, printed, strict=True):
            is_empty = point is None and printed_point is None
            cells.append(markdown.NOTHING if is_empty else markdown.point(point))
            if corpus:
                differences.append(difference(corpus, point, printed_point))
        lines.append(GridLine(side.printed.name, side.source, cells))
        if side.is_paper:
            continue
        our_points += side.series.points
        if corpus and side.series.points:
            lines.append(GridLine(side.printed.name, "difference", differences))
    grid = _grid(lines, columns)
    note = markdown.past_end_note(our_points)
    return f"{grid}\n{note}" if note else grid


def _speed_grid(rows: list[Row], columns: Sequence) -> str:
    """Format evaluation speeds; the paper's are at batch size 1."""
    lines: list[GridLine] = []
    for side in _sides(rows):
        points = _by_column(side.series, columns)
        missing = markdown.NOTHING if side.is_paper else markdown.MISSING
        for batch, attribute in _SPEED_ATTRIBUTES.items():
            if side.is_paper and batch != "batch 1":
                continue
            cells = [_speed(point, attribute, missing) for point in points]
            lines.append(GridLine(side.printed.name, f"{side.source}, {batch}", cells))
    return _grid(lines, columns)


def _speed(point: Measurement | None, attribute: str, missing: str) -> str:
    """Format a speed of a measurement, or the reason why there is none."""
    if point is None:
        return missing
    speed = getattr(point, attribute)
    if speed is None:
        return point.status or missing
    return f"{speed:.0f}"


def _cost_grid(item: str, rows: list[Row], validations: list[dict]) -> str:
    """Format the training costs of each model, the paper's and ours.

    Args:
        item: table of the paper.
        rows: the models.
        validations: result records of our trainings, in order of their updates.
    """
    printed_costs = {}
    for row in published.rows(item):
        printed_costs[model_label(row["position_method"], row["train_length"])] = row
    lines = []
    for side in _sides(rows):
        costs = printed_costs[side.printed.name]
        if not side.is_paper:
            costs = _recorded_costs(costs, validations)
        cells = [_cost(title, costs.get(key)) for title, key in COSTS[item].items()]
        lines.append(GridLine(side.printed.name, side.source, cells))
    return _grid(lines, list(COSTS[item]), corner="model")


def _cost(title: str, value: float | None) -> str:
    """Format a training cost."""
    if value is None:
        return markdown.MISSING
    return f"{value:.1f} GB" if title == "memory" else markdown.thousands(value)


def _recorded_costs(printed: dict, validations: list[dict]) -> dict:
    """Return the costs of our run at the paper's update count, with the paper's keys and units.

    Args:
        printed: the paper's row of the model.
        validations: result records of our trainings, in order of their updates. The last record
            of the model counts.
    """
    costs: dict = {}
    for record in validations:
        is_same_model = (
            record["position_method"] == printed["position_method"]
            and record["train_length"] == printed["train_length"]
        )
        if not is_same_model or not has_update_count(record["updates"], printed.get("updates")):
            continue
        costs = {key: record[key] for key in ("updates", "gpu_hours") if key in record}
        memory = record.get("peak_memory_mb")
        if memory:
            costs["train_memory_gb"] = memory / 1000
        speed = record.get("tokens_per_second")
        if speed:
            costs["train_words_per_second"] = speed / record.get("processes", 1)
    return costs
