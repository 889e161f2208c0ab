"""The paper's tables with our numbers next to them.

A table of the paper becomes rows (:mod:`.table_rows`), one per model, and grids of them.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from ..reporting import markdown
from ..reporting.rows import Point, Row
from ..results.case import Case
from ..results.result import Result
from . import published
from .comparability import different_units_reason
from .perplexity_grid import (
    GridLine,
    by_column,
    format_grid,
    perplexity_grid,
    sides_of,
)
from .report_data import ReportData
from .seed_noise import legend
from .speeds import speed_tables
from .table_rows import PaperRow, measurement_label, table_rows

#: Tables of perplexity and evaluation speed by evaluation length.
SWEEPS = ("table02", "table03", "table04")
#: Tables of perplexity on the validation and the test split.
TEST_SETS = ("table06", "table07", "table09", "table10")
#: Tables with one row for all models of a method, each evaluated at its training length. Only ALiBi
#: has a row per model.
JOINED = ("table05", "table08")
#: Table of speed and memory by training length.
SPEEDS = "table01"
#: The paper's tables.
TABLES = tuple(f"table{number:02d}" for number in range(1, 16))

#: Attribute of a result's cost by kind of evaluation speed. The paper has only the first.
_SPEED_ATTRIBUTES = {"batch 1": "tokens_per_second_batch_1", "full batches": "tokens_per_second"}


def table(item: str, report_data: ReportData) -> str:
    """Format a table of the paper as Markdown; without results, our numbers are missing.

    Each model has a line of the paper's numbers, one of ours, and one of their difference. Columns
    are evaluation lengths, or the validation and the test split. Some tables have a further grid of
    evaluation speeds. Table 1, which has no perplexities, is followed by one for each source of our
    speeds.

    Args:
        item: one of :data:`TABLES`, e.g. ``table05``.
        report_data: our results.
    """
    if item == SPEEDS:
        return markdown.to_markdown(speed_tables(report_data))
    corpus = published.corpus_of(item)
    printed = published.measurements(item)
    ours = report_data.comparable(corpus)
    rows = table_rows(printed, ours, joined=item in JOINED)
    columns: Sequence = sorted({measurement.length for measurement in printed})
    if item in TEST_SETS:
        columns = published.SPLITS
        rows = _with_other_authors(item, rows)
    parts = [perplexity_grid(rows, columns, corpus=corpus)]
    if item in SWEEPS or item == "table06":
        parts.append(
            "Speed of evaluation in tokens per second (the paper: words, one V100, batch size 1; "
            "ours: the machine named in the sources):\n"
        )
        speed_columns = columns if item in SWEEPS else ("valid",)
        parts.append(_speed_grid(rows, speed_columns))
    parts.append(legend(corpus) + "\n")
    note = _other_text_note(ours)
    if note:
        parts.append(note)
    return "\n".join(parts)


def _other_text_note(ours: list[Result]) -> str:
    """Return the reasons for which differences have no mark, or an empty string."""
    reasons: list[str] = []
    for result in ours:
        reason = different_units_reason(result)
        if reason and reason not in reasons:
            reasons.append(reason)
    if not reasons:
        return ""
    listed = markdown.literal("; ".join(reasons))
    return (
        f"No marks: {listed}, so perplexities per token are in different units from the paper's.\n"
    )


def _with_other_authors(item: str, rows: list[PaperRow]) -> list[PaperRow]:
    """Insert the rows of models by other authors, in the paper's order."""
    row_by_name = {row.printed.name: row for row in rows}
    row_by_model = {}
    for measurement in published.measurements(item):
        model = (measurement.method.notation, measurement.train_length)
        row_by_model[model] = row_by_name[measurement_label(measurement)]
    all_rows = []
    for printed in published.rows(item):
        model = (printed["position_method"], printed["train_length"])
        if model in row_by_model:
            all_rows.append(row_by_model[model])
        else:
            all_rows.append(_row_as_printed(printed))
    return all_rows


def _row_as_printed(printed: dict) -> PaperRow:
    """Create the row of a model by other authors."""
    points = []
    for split in published.SPLITS:
        perplexity = printed[f"{split}_perplexity"]
        if perplexity:
            case = Case("text", None, split, 1, 1)
            points.append(published.PrintedPoint(case, (), printed=perplexity))
    return PaperRow(Row(f"{printed['model']} (as printed)", "", None, points))


def _speed_grid(rows: list[PaperRow], columns: Sequence) -> str:
    """Format evaluation speeds; the paper's are at batch size 1.

    Args:
        rows: the models.
        columns: evaluation lengths or splits.
    """
    lines: list[GridLine] = []
    for side in sides_of(rows):
        points = by_column(side.model, columns)
        missing = markdown.NOTHING if side.is_printed else markdown.MISSING
        for batch, attribute in _SPEED_ATTRIBUTES.items():
            if side.is_printed and batch != "batch 1":
                continue
            cells = [_speed(point, attribute, missing) for point in points]
            lines.append(GridLine(side.printed.name, f"{side.source}, {batch}", cells))
    return format_grid(lines, columns)


def _speed(point: Point | None, attribute: str, missing: str) -> str:
    """Format a speed, the mean over seeds, or the reason why there is none.

    Args:
        point: the point, or None if it has not been measured.
        attribute: attribute of :class:`.Cost` with the speed.
        missing: text if the reason is unknown.
    """
    if point is None:
        return missing
    if isinstance(point, published.PrintedPoint):
        speeds = [point.words_per_second]
    else:
        speeds = [getattr(result.cost, attribute) for result in point.results]
    known = [speed for speed in speeds if speed is not None]
    if not known:
        return point.status or missing
    return f"{statistics.fmean(known):.0f}"
