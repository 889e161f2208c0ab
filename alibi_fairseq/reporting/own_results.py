"""Tables and figures of one's own measurements, whatever text they were made on.

Perplexity by length; sliding beside non-overlapping windows and loss by position, which show the
early-token curse (paper section 5, Appendix B): a prediction early in a window has little context.
Non-overlapping windows therefore get better as they get longer, even for a model that uses no longer
context at all; with S=1 every prediction has as much context as there is, and that part of the gain is
gone. And trainings: where each run ended, what it took, and its validation curve.
"""

from __future__ import annotations

import csv
import io
import math
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from alibi_fairseq.errors import BadInput
from alibi_fairseq.reporting import markdown, plots
from alibi_fairseq.results.points import Point, Series, caption, method_order, series, text_names

_CSV_COLUMNS = (
    *("position_method", "train_length", "length", "stride", "subset", "tokens"),
    *("loss_bits", "perplexity"),
)


#: Further columns of a table: header -> (position method, training length) -> text.
Columns = Mapping[str, Mapping[tuple[str, int | None], str]]


def length_table(
    points: Iterable[Point], with_bytes: bool = False, more: Columns | None = None
) -> str:
    """Perplexity in Markdown by model and length, a table for each split, inference and text.

    Args:
        with_bytes: add bits per byte, which other tokenisers share, where they are known.
        more: columns of what was measured beside.
    """
    tables = []
    for name, part in split_by_evaluation(points).items():
        tables.append(f"Perplexity on {markdown.literal(name)}:\n\n{_by_length(part, more=more)}")
        if with_bytes and any(point.bits_per_byte is not None for point in part):
            table = _by_length(part, _bits_per_byte)
            tables.append(f"Bits per byte on {markdown.literal(name)}:\n\n{table}")
    text = "\n".join(tables)
    return f"{text}\n{markdown.CHANCE_NOTE}\n" if markdown.CHANCE in text else text


def split_by_evaluation(points: Iterable[Point]) -> dict[str, list[Point]]:
    """The points that compare with each other, validation and non-overlapping windows first.

    By split, inference and, where there are several, text: ``valid, non-overlapping``.
    """

    def order(point: Point) -> tuple:
        overlap = 0 if point.nonoverlapping else point.stride
        return (point.subset != "valid", point.subset, not point.nonoverlapping, overlap)

    points = sorted(points, key=order)
    names = text_names(point.text for point in points)
    parts: dict[str, list[Point]] = defaultdict(list)
    for point in points:
        name = ", ".join(filter(None, (point.subset, point.inference, names[point.text])))
        parts[name].append(point)
    return parts


def _by_length(
    points: list[Point],
    show: Callable[[Point | None], str] = markdown.point,
    more: Columns | None = None,
) -> str:
    more = more or {}
    lengths = sorted({point.length for point in points})
    rows = []
    for model in series(points):
        at = {point.length: point for point in model.points}
        shorter = {n for n in lengths if n < (model.train_length or 0)} - at.keys()
        cells = (markdown.NOTHING if n in shorter else show(at.get(n)) for n in lengths)
        key = (model.position_method, model.train_length)
        others = (of_model.get(key, markdown.NOTHING) for of_model in more.values())
        rows.append([model.label, *cells, *others])
    return markdown.table([markdown.CORNER, *map(str, lengths), *more], rows)


def _bits_per_byte(point: Point | None) -> str:
    if point is None or point.bits_per_byte is None:
        return markdown.MISSING
    return f"{point.bits_per_byte:.4f}"


def length_csv(*documents: dict) -> str:
    """Evaluation documents as CSV, one line per cell, in the order of the documents."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, _CSV_COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(cell for document in documents for cell in document["cells"])
    return stream.getvalue()


def draw_lengths(points: list[Point], title: str, *paths: str | os.PathLike) -> None:
    """Draw perplexity against length, one line per model, one panel per split, inference and text.

    Several methods at several training lengths have a panel for each of these. Panels with a single
    length, where nothing can be seen, are left out if there are others.

    Raises:
        BadInput: there are no points.
    """
    if not points:
        raise BadInput(f"{title}: the results hold no cells, so there is nothing to draw.")
    panels = {}
    for name, part in split_by_evaluation(points).items():
        lines = series(part)
        lengths = sorted({point.train_length for point in part})
        if len(lengths) == 1 or len({point.position_method for point in part}) == 1:
            panels[name] = lines
            continue
        for length in lengths:
            own = [line for line in lines if line.train_length == length]
            panels[f"{name}, trained at L={length}"] = without_length(own)
    several = {
        name: lines
        for name, lines in panels.items()
        if any(len({point.length for point in line.points}) > 1 for line in lines)
    }
    plots.draw_panels(title, several or panels, *paths)


def without_length(lines: Iterable[Series]) -> list[Series]:
    """Lines labelled without the training length, for a panel whose title gives it."""
    return [
        replace(line, title=line.label.replace(f", L={line.train_length}", ""), variant="")
        for line in lines
    ]


def stride_table(points: Iterable[Point]) -> str:
    """Non-overlapping windows beside sliding ones, for one split; empty if no length has both."""
    compared: list[tuple[str, Point, dict[str, Point]]] = []
    for model in series(points):
        at: dict[int, dict[str, Point]] = defaultdict(dict)
        for point in model.points:
            at[point.length][point.inference] = point
        for found in at.values():
            whole = found.pop("non-overlapping", None)
            if whole and found:
                compared.append((model.label, whole, found))
    sliding = sorted({point.stride for *_, found in compared for point in found.values()})
    if not sliding:
        return ""
    headers = ["trained", "evaluated at", "non-overlapping"]
    headers += [header for stride in sliding for header in (f"S={stride}", "gain")]
    lines = []
    for label, whole, found in compared:
        line = [label, str(whole.length), markdown.point(whole)]
        for stride in sliding:
            slid = found.get(f"S={stride}")
            gain = markdown.NOTHING
            if slid and slid.perplexity is not None and whole.perplexity is not None:
                gain = markdown.difference(whole.perplexity - slid.perplexity)
            line += [markdown.point(slid), gain]
        lines.append(line)
    return markdown.table(headers, lines)


def draw_strides(points: list[Point], title: str, *paths: str | os.PathLike) -> None:
    """Perplexity on one split against length for each stride, one panel for each method."""
    strides = ["non-overlapping"] + sorted({p.inference for p in points if not p.nonoverlapping})
    panels = []
    for method in sorted({p.position_method for p in points}, key=method_order):
        models, lines = series(p for p in points if p.position_method == method), []
        lengths = sorted({model.train_length or 0 for model in models})
        for place, stride in enumerate(strides):
            for model in models:
                cut = [point for point in model.points if point.inference == stride]
                name = f"{model.label.partition(', ')[2]}, {stride}"
                model = replace(model, points=cut, title=name, variant="")
                line = plots.line_of(model, lengths=lengths)
                dashes = plots.DASHES[place % len(plots.DASHES)]
                lines.append(replace(line, look=replace(line.look, linestyle=dashes)))
        panels.append(plots.Panel(models[0].points[0].method, lines))
    plots.draw(title, panels, *paths, caption=caption(points))


def position_lines(points: Iterable[Point]) -> list[Series]:
    """The points of ``position_loss`` documents by line of their plot, in order of position."""
    points = list(points)
    shared = shared_window(points)
    by_window: dict[str, list[Point]] = defaultdict(list)
    for point in points:
        added = (part for part in _window(point) if part not in shared)
        by_window["".join(f", {part}" for part in added)].append(point)
    lines = [
        replace(line, title=replace(line, variant="").label + added)
        for added, members in by_window.items()
        for line in series(members, over="position_from")
    ]
    return sorted(lines, key=lambda line: line.label)


def _window(point: Point) -> list[str]:
    return [point.subset, f"evaluated at {point.length}", point.inference]


def shared_window(points: list[Point]) -> list[str]:
    """What holds for all points: ``["valid", "evaluated at 512", "S=1"]`` or parts of it."""
    found = [_window(point) for point in points]
    return [part for part in found[0] if all(part in parts for parts in found)]


def position_table(points: Iterable[Point]) -> str:
    """Loss in bits per token by position in the window, one column per line of the plot."""
    lines = position_lines(points)
    places = [{(p.position_from, p.position_to): _loss(p) for p in line.points} for line in lines]
    rows = [
        [
            str(first) if end == first + 1 else f"{first}–{end - 1}",
            *(line.get((first, end), markdown.NOTHING) for line in places),
        ]
        for first, end in sorted({bucket for line in places for bucket in line})
    ]
    return markdown.table(["position in the window", *(line.label for line in lines)], rows)


def _loss(point: Point) -> str:
    spread = "" if point.spread is None else f" ± {point.spread:.3f}"
    return f"{point.loss_bits:.3f}{spread}"


def draw_positions(points: list[Point], title: str, *paths: str | os.PathLike) -> None:
    """Loss against the context a prediction had in its window."""

    def context(point: Point) -> float:
        """Geometric middle of those of the range: position p has p + 1 tokens."""
        return math.sqrt((point.position_from + 1) * point.position_to)

    found = position_lines(points)
    lines = [plots.line_of(line, context, lambda p: p.loss_bits) for line in found]
    trained_at = plots.only({point.train_length for point in points})
    axes = ("Context in the window (tokens)", "Loss (bits per token)")
    panel = plots.Panel("", lines, *axes, scale="linear", trained_at=trained_at)
    averaged = (point for line in found for point in line.points)
    plots.draw(title, [panel], *paths, caption=caption(averaged))


def training_table(points: Iterable[Point]) -> str:
    """The last validation of each run and split: updates, loss, perplexity and cost."""
    rows = []
    for line in series(points, over="updates"):
        last = line.points[-1]
        loss = [f"{last.loss_bits:.3f}", markdown.perplexity(2**last.loss_bits)]
        costs = (last.tokens_per_second, last.peak_memory_mb, last.gpu_hours)
        rows.append([line.label, last.subset, str(last.updates), *loss, *map(_cost, costs)])
    headers = ["run", "split", "updates", "loss (bits)", "perplexity"]
    return markdown.table([*headers, "tokens/s", "memory (MB)", "GPU hours"], rows, left=2)


def _cost(value: float | None) -> str:
    return markdown.NOTHING if value is None else f"{value:.4g}" if value < 100 else f"{value:.0f}"


def draw_training(points: list[Point], title: str, *paths: str | os.PathLike) -> None:
    """Perplexity against updates, one line for each run and split."""
    lines = [
        plots.line_of(line, lambda p: p.updates or 0, lambda p: 2**p.loss_bits)
        for line in series(points, over="updates")
    ]
    panel = plots.Panel("", lines, "Updates", over_length=False)
    plots.draw(title, [panel], *paths, caption=caption(points))
