"""Tables and figures of perplexity by evaluation length, for any corpus."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from alibi_fairseq.reporting import markdown, plots
from alibi_fairseq.reporting.table import Table
from alibi_fairseq.results.measurements import Measurement, Series, group_by_model, text_names

#: Additional columns of a table: header → (position method, training length) → text.
Columns = Mapping[str, Mapping[tuple[str, int | None], str]]


def length_table(points: Iterable[Measurement], more: Columns | None = None) -> str:
    """Format the tables of :func:`length_tables` in Markdown."""
    return to_markdown(length_tables(points, more))


def to_markdown(tables: Iterable[Table]) -> str:
    """Format tables in Markdown, each with its caption above and its notes below."""
    parts = []
    for table in tables:
        body = markdown.table(table.headers, table.rows, table.left)
        parts.append(f"{markdown.literal(table.caption)}:\n\n{body}")
        parts += [f"{note}\n" for note in table.notes]
    text = "\n".join(parts)
    return f"{text}\n{markdown.CHANCE_NOTE}\n" if markdown.CHANCE in text else text


def length_tables(
    points: Iterable[Measurement],
    more: Columns | None = None,
    columns: Sequence[str] = (),
) -> list[Table]:
    """Return the perplexities by model and length, one table per split, stride, and text.

    A table of bits per byte, which are comparable across tokenizers, follows each table for which
    they are known.

    Args:
        points: measurements of any models.
        more: additional columns, such as training costs.
        columns: evaluation lengths and keys of :data:`MODEL_COLUMNS` to show, in this order. A table
            omits those that it lacks (default: all lengths).
    """
    tables = []
    for name, part in split_by_evaluation(points).items():
        table = _by_length(part, markdown.point, more, columns)
        part_tables = [replace(table, caption=f"Perplexity on {name}")]
        if any(point.bits_per_byte is not None for point in part):
            table = _by_length(part, _bits_per_byte, {}, columns)
            part_tables.append(replace(table, caption=f"Bits per byte on {name}"))
        note = markdown.past_end_note(part).strip()
        if note:
            part_tables[-1] = replace(part_tables[-1], notes=[note])
        tables += part_tables
    return tables


def available_columns(points: Iterable[Measurement]) -> list[str]:
    """Return the names that :func:`length_tables` accepts as columns."""
    lengths = sorted({point.length for point in points})
    return [*map(str, lengths), *MODEL_COLUMNS]


def split_by_evaluation(points: Iterable[Measurement]) -> dict[str, list[Measurement]]:
    """Group the measurements that are comparable, validation and non-overlapping windows first.

    A group has one split, one stride, and one text. Its name, such as ``valid, non-overlapping``,
    includes the text only if there are several.
    """
    ordered = sorted(points, key=_evaluation_order)
    names = text_names(point.text for point in ordered)
    parts: dict[str, list[Measurement]] = defaultdict(list)
    for point in ordered:
        name = ", ".join(filter(None, (point.subset, point.inference, names[point.text])))
        parts[name].append(point)
    return parts


def _evaluation_order(point: Measurement) -> tuple[bool, str, bool, int]:
    """Return the sort key of a measurement's split and stride."""
    stride = 0 if point.nonoverlapping else point.stride
    return (point.subset != "valid", point.subset, not point.nonoverlapping, stride)


def _by_length(
    points: list[Measurement],
    show: Callable[[Measurement | None], str],
    more: Columns | None,
    columns: Sequence[str],
) -> Table:
    """Create a table with a row per model and a column per evaluation length."""
    extra_columns = more or {}
    names = [str(length) for length in sorted({point.length for point in points})]
    if columns:
        names = [name for name in columns if name in names or name in MODEL_COLUMNS]
    rows = []
    for model in group_by_model(points):
        row = [model.label]
        for name in names:
            if name in MODEL_COLUMNS:
                row.append(MODEL_COLUMNS[name](model))
            else:
                row.append(_at_length(model, int(name), show))
        key = (model.position_method, model.train_length)
        for texts in extra_columns.values():
            row.append(texts.get(key, markdown.NOTHING))
        rows.append(row)
    return Table([markdown.CORNER, *names, *extra_columns], rows)


def _at_length(model: Series, length: int, show: Callable[[Measurement | None], str]) -> str:
    """Format the measurement of a model at a length, which may be missing."""
    for point in model.points:
        if point.length == length:
            return show(point)
    is_shorter = length < (model.train_length or 0)
    return markdown.NOTHING if is_shorter else show(None)


def _parameters(model: Series) -> str:
    """Format the number of parameters of a model."""
    count = model.points[0].parameters
    return markdown.NOTHING if count is None else f"{count / 1e6:.1f}M"


def _updates(model: Series) -> str:
    """Format the update counts of a model's checkpoints."""
    counts = {point.updates for point in model.points if point.updates is not None}
    if not counts:
        return markdown.NOTHING
    return ", ".join(f"{count:,}" for count in sorted(counts))


def _seeds(model: Series) -> str:
    """Format the number of averaged seeds."""
    return ", ".join(str(count) for count in sorted({point.seeds for point in model.points}))


#: Columns that describe the model, by header.
MODEL_COLUMNS: dict[str, Callable[[Series], str]] = {
    "parameters": _parameters,
    "updates": _updates,
    "seeds": _seeds,
}


def _bits_per_byte(point: Measurement | None) -> str:
    if point is None or point.bits_per_byte is None:
        return markdown.MISSING
    mark = f" {markdown.PAST_END}" if point.is_past_end else ""
    return f"{point.bits_per_byte:.4f}{mark}"


def draw_lengths(points: list[Measurement], title: str, *paths: str | os.PathLike) -> None:
    """Draw perplexity against length, one line per model, in the panels of :func:`panels_of`.

    Panels with a single evaluation length show no trend and are omitted if there are other panels.
    """
    panels = panels_of(points)
    informative = {name: lines for name, lines in panels.items() if _has_several_lengths(lines)}
    plots.draw_panels(title, informative or panels, *paths)


def panels_of(points: Iterable[Measurement]) -> dict[str, list[Series]]:
    """Return the models of each panel of a figure: one panel per split, stride, and text.

    Several methods at several training lengths get a panel per training length.
    """
    panels = {}
    for name, part in split_by_evaluation(points).items():
        lines = group_by_model(part)
        train_lengths = sorted({point.train_length for point in part})
        methods = {point.position_method for point in part}
        if len(train_lengths) == 1 or len(methods) == 1:
            panels[name] = lines
            continue
        for train_length in train_lengths:
            same_length = [line for line in lines if line.train_length == train_length]
            panels[f"{name}, trained at L={train_length}"] = without_length(same_length)
    return panels


def _has_several_lengths(lines: Iterable[Series]) -> bool:
    """Return True if any line has points at more than one evaluation length."""
    return any(len({point.length for point in line.points}) > 1 for line in lines)


def without_length(lines: Iterable[Series]) -> list[Series]:
    """Remove the training length from labels, for a panel whose title contains it."""
    return [replace(line, name=line.name.replace(f", L={line.train_length}", "")) for line in lines]
