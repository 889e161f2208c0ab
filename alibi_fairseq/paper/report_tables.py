"""The paper's tables with our numbers next to them.

A table of the paper becomes rows (:mod:`.table_rows`), one per model, and grids of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..positions.spec import MethodSpec
from ..reporting import markdown
from ..results.groups import ModelMeasurements
from ..results.model import Model
from ..results.record import Measurement
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
from .table_rows import Row, table_rows

#: Tables of perplexity and evaluation speed by evaluation length.
SWEEPS = ("table02", "table03", "table04")
#: Tables of perplexity on the validation and the test split.
TEST_SETS = ("table06", "table07", "table09", "table10")
#: Tables with one row for all models of a method, each evaluated at its training length. Only ALiBi
#: has a row per model.
JOINED = ("table05", "table08")
#: Tables of perplexities: all of the paper's but Table 1, which has speed and memory.
TABLES = tuple(f"table{number:02d}" for number in range(2, 16))

#: Attribute of a measurement by kind of evaluation speed. The paper has only the first.
_SPEED_ATTRIBUTES = {"batch 1": "tokens_per_second_batch_1", "full batches": "tokens_per_second"}


def table(item: str, report_data: ReportData) -> str:
    """Format a table of the paper as Markdown; without results, our numbers are missing.

    Each model has a line of the paper's numbers, one of ours, and one of their difference. Columns
    are evaluation lengths, or the validation and the test split. Some tables have a further grid of
    evaluation speeds.

    Args:
        item: one of :data:`TABLES`, e.g. ``table05``.
        report_data: our results.
    """
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


def _other_text_note(ours: list[Measurement]) -> str:
    """Return the reasons for which differences have no mark, or an empty string."""
    reasons: list[str] = []
    for measurement in ours:
        reason = different_units_reason(measurement)
        if reason and reason not in reasons:
            reasons.append(reason)
    if not reasons:
        return ""
    listed = markdown.literal("; ".join(reasons))
    return (
        f"No marks: {listed}, so perplexities per token are in different units from the paper's.\n"
    )


def _with_other_authors(item: str, rows: list[Row]) -> list[Row]:
    """Insert the rows of models by other authors, in the paper's order."""
    row_by_model = {}
    for row in rows:
        for measurement in row.printed.measurements:
            row_by_model[measurement.model.method.notation, measurement.model.train_length] = row
    all_rows = []
    for printed in published.rows(item):
        model = (printed["position_method"], printed["train_length"])
        if model in row_by_model:
            all_rows.append(row_by_model[model])
        else:
            all_rows.append(_row_as_printed(printed))
    return all_rows


def _row_as_printed(printed: dict) -> Row:
    """Create the row of a model by other authors."""
    measurements = []
    for subset in published.SPLITS:
        perplexity = printed[f"{subset}_perplexity"]
        if perplexity:
            model = Model(method=MethodSpec.plain("other"), train_length=1)
            measurements.append(
                published.PrintedMeasurement(
                    model=model, length=1, stride=1, subset=subset, printed=perplexity
                )
            )
    return Row(ModelMeasurements("", None, measurements, f"{printed['model']} (as printed)"))


def _speed_grid(rows: list[Row], columns: Sequence) -> str:
    """Format evaluation speeds; the paper's are at batch size 1.

    Args:
        rows: the models.
        columns: evaluation lengths or splits.
    """
    lines: list[GridLine] = []
    for side in sides_of(rows):
        measurements = by_column(side.model, columns)
        missing = markdown.NOTHING if side.is_printed else markdown.MISSING
        for batch, attribute in _SPEED_ATTRIBUTES.items():
            if side.is_printed and batch != "batch 1":
                continue
            cells = [_speed(measurement, attribute, missing) for measurement in measurements]
            lines.append(GridLine(side.printed.name, f"{side.source}, {batch}", cells))
    return format_grid(lines, columns)


def _speed(measurement: Measurement | None, attribute: str, missing: str) -> str:
    """Format a speed of a measurement, or the reason why there is none.

    Args:
        measurement: the measurement, or None if it has not been made.
        attribute: attribute of the measurement with the speed.
        missing: text if the reason is unknown.
    """
    if measurement is None:
        return missing
    speed = getattr(measurement, attribute)
    if speed is None:
        return measurement.status or missing
    return f"{speed:.0f}"
