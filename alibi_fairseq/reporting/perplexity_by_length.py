"""Tables and figures of perplexity by evaluation length, for any corpus."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from alibi_fairseq.reporting import markdown, plots
from alibi_fairseq.reporting.table import Table
from alibi_fairseq.results.measurements import Measurement, TextKey, text_names
from alibi_fairseq.results.model_groups import ModelKey, Series, group_by_model

#: Additional columns of a table: header → model → text.
Columns = Mapping[str, Mapping[ModelKey, str]]


def length_table(points: Iterable[Measurement], more: Columns | None = None) -> str:
    """Format the tables of :func:`length_tables` in Markdown."""
    return markdown.to_markdown(length_tables(points, more))


def length_tables(
    points: Iterable[Measurement],
    more: Columns | None = None,
    columns: Sequence[str] = (),
) -> list[Table]:
    """Return the perplexities by model and length, one table per split, stride, and text.

    A table of bits per byte, which are comparable across tokenizers, follows each table for which
    they are known. Models with different tokenizers that were evaluated on the same raw text share
    one table of bits per byte.

    Args:
        points: measurements of any models.
        more: additional columns, such as training costs.
        columns: evaluation lengths and keys of :data:`MODEL_COLUMNS` to show, in this order. A
            table omits those that it lacks (default: all lengths).
    """
    points = list(points)
    tables = []
    for name, part in split_by_evaluation(points).items():
        table = _by_length(part, markdown.point, more, columns)
        part_tables = [replace(table, caption=f"Perplexity on {name}")]
        has_bits_per_byte = any(point.bits_per_byte is not None for point in part)
        if has_bits_per_byte and not part[0].is_raw_text:
            part_tables.append(_bits_per_byte_table(name, part, columns))
        note = markdown.past_end_note(part).strip()
        if note:
            part_tables[-1] = replace(part_tables[-1], notes=[note])
        tables += part_tables
    for name, part in split_by_raw_text(points).items():
        tables.append(_bits_per_byte_table(name, part, columns))
    return tables


def _bits_per_byte_table(name: str, points: list[Measurement], columns: Sequence[str]) -> Table:
    """Create a table of bits per byte."""
    table = _by_length(points, _bits_per_byte, {}, columns)
    return replace(table, caption=f"Bits per byte on {name}")


def available_columns(points: Iterable[Measurement]) -> list[str]:
    """Return the names that :func:`length_tables` accepts as columns."""
    lengths = sorted({point.length for point in points})
    return [*map(str, lengths), *MODEL_COLUMNS]


def split_by_evaluation(points: Iterable[Measurement]) -> dict[str, list[Measurement]]:
    """Group the measurements that are comparable, validation and non-overlapping windows first.

    A group has one split, one stride, and one text. Its name, such as ``valid, non-overlapping``,
    includes the text only if there are several.
    """
    return _split(points, lambda point: point.text)


def split_by_raw_text(points: Iterable[Measurement]) -> dict[str, list[Measurement]]:
    """Group the measurements on raw text whose bits per byte are comparable, of any tokenizer.

    A group has one split, one stride, and the same bytes of one text.
    """
    known = [point for point in points if point.is_raw_text and point.bits_per_byte is not None]
    return _split(known, lambda point: point.raw_text)


def _split(
    points: Iterable[Measurement], text_of: Callable[[Measurement], TextKey]
) -> dict[str, list[Measurement]]:
    """Group measurements by split, stride, and text, in the order of the evaluations."""
    ordered = sorted(points, key=_evaluation_order)
    names = text_names(text_of(point) for point in ordered)
    parts: dict[str, list[Measurement]] = defaultdict(list)
    for point in ordered:
        parts_of_name = (point.subset, point.inference, names[text_of(point)])
        parts[", ".join(filter(None, parts_of_name))].append(point)
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
        for texts in extra_columns.values():
            row.append(texts.get(model.key, markdown.NOTHING))
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
    Models with different tokenizers are compared in bits per byte.
    """
    if has_several_tokenizers(points):
        panels = _panels(split_by_raw_text(points))
        plots.draw_panels(
            title,
            _informative(panels),
            *paths,
            line_of=_line_of_bits_per_byte,
            y="Bits per byte (lower is better)",
        )
    else:
        plots.draw_panels(title, _informative(panels_of(points)), *paths)


def _line_of_bits_per_byte(series: Series, lengths: Sequence[int] = ()) -> plots.PlotLine:
    """Create the line of a model's bits per byte by evaluation length."""
    points = [
        replace(point, perplexity=point.bits_per_byte, spread=None) for point in series.points
    ]
    return plots.line_of(replace(series, points=points), lengths)


def _informative(panels: dict[str, list[Series]]) -> dict[str, list[Series]]:
    """Return the panels with several evaluation lengths, or all if there are none."""
    informative = {name: lines for name, lines in panels.items() if _has_several_lengths(lines)}
    return informative or panels


def has_several_tokenizers(points: list[Measurement]) -> bool:
    """Return True if bits per byte of different tokenizers are known for a raw text."""
    num_texts = len({point.raw_text for point in points})
    num_tokenizations = len({point.text for point in points})
    is_measured = all(point.bits_per_byte is not None for point in points)
    return num_tokenizations > num_texts and is_measured


def panels_of(points: Iterable[Measurement]) -> dict[str, list[Series]]:
    """Return the models of each panel of a figure: one panel per split, stride, and text.

    Several methods at several training lengths get a panel per training length. Models on a raw
    text share a panel.
    """
    return _panels(split_by_evaluation(points))


def _panels(parts: Mapping[str, list[Measurement]]) -> dict[str, list[Series]]:
    """Return the models of each panel for the measurements by panel title."""
    panels = {}
    for name, part in parts.items():
        lines = group_by_model(part)
        train_lengths = sorted({point.train_length for point in part})
        methods = {point.position_method for point in part}
        if len(train_lengths) == 1 or len(methods) == 1 or part[0].is_raw_text:
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
