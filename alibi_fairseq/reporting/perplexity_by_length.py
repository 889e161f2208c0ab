"""Tables of perplexity by evaluation length, for any corpus."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from ..results.groups import (
    ModelMeasurements,
    average_by_model,
    group_by_evaluation,
    group_by_raw_text,
)
from ..results.model import ModelKey
from ..results.record import Measurement
from . import markdown
from .caption import conditions
from .table import Table
from .undertrained import undertrained_warning

#: Additional columns of a table: header → model → text.
Columns = Mapping[str, Mapping[ModelKey, str]]


def length_table(measurements: Iterable[Measurement], extra_columns: Columns | None = None) -> str:
    """Format the tables of :func:`length_tables` in Markdown."""
    tables = length_tables(measurements, extra_columns)
    return markdown.to_markdown(tables)


def length_tables(
    measurements: Iterable[Measurement],
    extra_columns: Columns | None = None,
    columns: Sequence[str] = (),
) -> list[Table]:
    """Return the perplexities by model and length, one table per group of comparable measurements.

    :func:`.group_by_evaluation` makes these groups.

    Bits per byte, which are comparable across tokenizers, have separate tables. On binary data, the
    table follows the perplexities of the same group. On raw text, models with different tokenizers
    share one table, and these tables come last.

    Args:
        measurements: measurements of any models.
        extra_columns: additional columns about the models as trained. They are empty for
            variants, whose evaluation has overridden options.
        columns: evaluation lengths and keys of :data:`MODEL_COLUMNS` to show, in this order. A
            table omits those that it lacks (default: all lengths).
    """
    measurements = list(measurements)
    tables = []
    for name, group in group_by_evaluation(measurements).items():
        caption = f"Perplexity on {name}"
        tables.append(_length_table(caption, group, markdown.measurement, extra_columns, columns))
        has_bits_per_byte = any(measurement.bits_per_byte is not None for measurement in group)
        if has_bits_per_byte and not group[0].is_raw_text:
            tables.append(_bits_per_byte_table(name, group, columns))
        note = markdown.past_end_note(group).strip()
        if note:
            # One note for all tables of the group, below the last.
            tables[-1] = replace(tables[-1], notes=[note])
    for name, group in group_by_raw_text(measurements).items():
        tables.append(_bits_per_byte_table(name, group, columns))
    return tables


def _bits_per_byte_table(
    name: str, measurements: list[Measurement], columns: Sequence[str]
) -> Table:
    """Create a table of bits per byte.

    Args:
        name: name of the group of measurements.
        measurements: comparable measurements.
        columns: see :func:`length_tables`.
    """
    caption = f"Bits per byte on {name}"
    return _length_table(caption, measurements, _bits_per_byte, None, columns)


def available_columns(measurements: Iterable[Measurement]) -> list[str]:
    """Return the names that :func:`length_tables` accepts as columns."""
    return _length_names(measurements) + list(MODEL_COLUMNS)


def _length_names(measurements: Iterable[Measurement]) -> list[str]:
    """Return the evaluation lengths, ascending, as names of columns."""
    lengths = sorted({measurement.length for measurement in measurements})
    return [str(length) for length in lengths]


def _length_table(
    caption: str,
    measurements: list[Measurement],
    show: Callable[[Measurement | None], str],
    extra_columns: Columns | None,
    columns: Sequence[str],
) -> Table:
    """Create a table with a row per model and a column per evaluation length.

    Args:
        caption: caption of the table.
        measurements: comparable measurements.
        show: function that formats a measurement, or None for a missing one.
        extra_columns: additional columns.
        columns: see :func:`length_tables`.
    """
    extra_columns = extra_columns or {}
    names = _length_names(measurements)
    if columns:
        names = [name for name in columns if name in names or name in MODEL_COLUMNS]
    rows = []
    models = average_by_model(measurements)
    for model in models:
        row = [model.label]
        for name in names:
            if name in MODEL_COLUMNS:
                row.append(MODEL_COLUMNS[name](model))
            else:
                row.append(_at_length(model, int(name), show))
        is_variant = model.measurements[0].model.label is not None
        for texts in extra_columns.values():
            text = markdown.NOTHING if is_variant else texts.get(model.key, markdown.NOTHING)
            row.append(text)
        rows.append(row)
    headers = [markdown.CORNER, *names, *extra_columns]
    return Table(
        headers,
        rows,
        caption=caption,
        conditions=conditions(models),
        warning=undertrained_warning(models),
    )


def _at_length(
    model: ModelMeasurements, length: int, show: Callable[[Measurement | None], str]
) -> str:
    """Format the measurement of a model at a length.

    A measurement below the training length is not missing, because models are usually evaluated at
    their training length and beyond.

    Args:
        model: measurements of the model.
        length: evaluation length.
        show: function that formats a measurement, or None for a missing one.
    """
    for measurement in model.measurements:
        if measurement.length == length:
            return show(measurement)
    if model.train_length is not None and length < model.train_length:
        return markdown.NOTHING
    return show(None)


def _parameters(model: ModelMeasurements) -> str:
    """Format the number of parameters of a model."""
    count = model.measurements[0].model.parameters
    if count is None:
        return markdown.NOTHING
    return f"{count / 1e6:.1f}M"


def _updates(model: ModelMeasurements) -> str:
    """Format the update counts of a model's checkpoints."""
    counts = set()
    for measurement in model.measurements:
        if measurement.model.updates is not None:
            counts.add(measurement.model.updates)
    if not counts:
        return markdown.NOTHING
    return ", ".join(f"{count:,}" for count in sorted(counts))


def _seeds(model: ModelMeasurements) -> str:
    """Format the number of averaged seeds."""
    counts = {measurement.seeds for measurement in model.measurements}
    return ", ".join(str(count) for count in sorted(counts))


#: Columns that describe the model, by header.
MODEL_COLUMNS: dict[str, Callable[[ModelMeasurements], str]] = {
    "parameters": _parameters,
    "updates": _updates,
    "seeds": _seeds,
}


def _bits_per_byte(measurement: Measurement | None) -> str:
    """Format bits per byte, or ``missing`` for None."""
    if measurement is None or measurement.bits_per_byte is None:
        return markdown.MISSING
    text = f"{measurement.bits_per_byte:.4f}"
    if measurement.is_past_end:
        text += f" {markdown.PAST_END}"
    return text
