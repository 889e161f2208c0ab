"""Tables of perplexity by evaluation length, for any corpus."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from alibi_fairseq.reporting import markdown
from alibi_fairseq.reporting.table import Table
from alibi_fairseq.results.evaluation_groups import split_by_evaluation, split_by_raw_text
from alibi_fairseq.results.measurements import Measurement
from alibi_fairseq.results.model_groups import ModelKey, Series, group_by_model

#: Additional columns of a table: header → model → text.
Columns = Mapping[str, Mapping[ModelKey, str]]


def length_table(measurements: Iterable[Measurement], more: Columns | None = None) -> str:
    """Format the tables of :func:`length_tables` in Markdown."""
    return markdown.to_markdown(length_tables(measurements, more))


def length_tables(
    measurements: Iterable[Measurement],
    more: Columns | None = None,
    columns: Sequence[str] = (),
) -> list[Table]:
    """Return the perplexities by model and length, one table per split, stride, and text.

    A table of bits per byte, which are comparable across tokenizers, follows each table for which
    they are known. Models with different tokenizers that were evaluated on the same raw text share
    one table of bits per byte.

    Args:
        measurements: measurements of any models.
        more: additional columns, such as training costs.
        columns: evaluation lengths and keys of :data:`MODEL_COLUMNS` to show, in this order. A
            table omits those that it lacks (default: all lengths).
    """
    measurements = list(measurements)
    tables = []
    for name, part in split_by_evaluation(measurements).items():
        table = _by_length(part, markdown.measurement, more, columns)
        tables.append(replace(table, caption=f"Perplexity on {name}"))
        has_bits_per_byte = any(measurement.bits_per_byte is not None for measurement in part)
        if has_bits_per_byte and not part[0].is_raw_text:
            tables.append(_bits_per_byte_table(name, part, columns))
        note = markdown.past_end_note(part).strip()
        if note:
            tables[-1] = replace(tables[-1], notes=[note])
    for name, part in split_by_raw_text(measurements).items():
        tables.append(_bits_per_byte_table(name, part, columns))
    return tables


def _bits_per_byte_table(
    name: str, measurements: list[Measurement], columns: Sequence[str]
) -> Table:
    """Create a table of bits per byte."""
    table = _by_length(measurements, _bits_per_byte, {}, columns)
    return replace(table, caption=f"Bits per byte on {name}")


def available_columns(measurements: Iterable[Measurement]) -> list[str]:
    """Return the names that :func:`length_tables` accepts as columns."""
    lengths = sorted({measurement.length for measurement in measurements})
    return [*map(str, lengths), *MODEL_COLUMNS]


def _by_length(
    measurements: list[Measurement],
    show: Callable[[Measurement | None], str],
    more: Columns | None,
    columns: Sequence[str],
) -> Table:
    """Create a table with a row per model and a column per evaluation length."""
    extra_columns = more or {}
    names = [str(length) for length in sorted({measurement.length for measurement in measurements})]
    if columns:
        names = [name for name in columns if name in names or name in MODEL_COLUMNS]
    rows = []
    for model in group_by_model(measurements):
        row = [model.label]
        for name in names:
            if name in MODEL_COLUMNS:
                row.append(MODEL_COLUMNS[name](model))
            else:
                row.append(_at_length(model, int(name), show))
        for texts in extra_columns.values():
            row.append(texts.get(model.key, markdown.NOTHING))
        rows.append(row)
    return Table([markdown.CORNER, *names, *extra_columns], rows)


def _at_length(model: Series, length: int, show: Callable[[Measurement | None], str]) -> str:
    """Format the measurement of a model at a length, which may be missing."""
    for measurement in model.measurements:
        if measurement.length == length:
            return show(measurement)
    is_shorter = length < (model.train_length or 0)
    return markdown.NOTHING if is_shorter else show(None)


def _parameters(model: Series) -> str:
    """Format the number of parameters of a model."""
    count = model.measurements[0].parameters
    return markdown.NOTHING if count is None else f"{count / 1e6:.1f}M"


def _updates(model: Series) -> str:
    """Format the update counts of a model's checkpoints."""
    counts = {
        measurement.updates for measurement in model.measurements if measurement.updates is not None
    }
    if not counts:
        return markdown.NOTHING
    return ", ".join(f"{count:,}" for count in sorted(counts))


def _seeds(model: Series) -> str:
    """Format the number of averaged seeds."""
    counts = {measurement.seeds for measurement in model.measurements}
    return ", ".join(str(count) for count in sorted(counts))


#: Columns that describe the model, by header.
MODEL_COLUMNS: dict[str, Callable[[Series], str]] = {
    "parameters": _parameters,
    "updates": _updates,
    "seeds": _seeds,
}


def _bits_per_byte(measurement: Measurement | None) -> str:
    if measurement is None or measurement.bits_per_byte is None:
        return markdown.MISSING
    mark = f" {markdown.PAST_END}" if measurement.is_past_end else ""
    return f"{measurement.bits_per_byte:.4f}{mark}"
