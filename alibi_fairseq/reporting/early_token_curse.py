"""The early-token curse (paper section 5, Appendix B): sliding windows, and loss by position.

A prediction early in a window has little context. Non-overlapping windows therefore get better as
they get longer, even for a model that uses no longer context at all; with S=1 every prediction has
as much context as there is, and that part of the gain is gone.
"""

from __future__ import annotations

import math
import os
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import cycle

from alibi_fairseq.reporting import markdown, style
from alibi_fairseq.results.points import (
    Point,
    evaluation_points,
    method_name,
    method_order,
    model_label,
    series,
    variant_names,
)

_LINE_STYLES = ("-", "--", ":", "-.")  # non-overlapping first, then the strides in order


def stride_table(points: Iterable[Point]) -> str:
    """Non-overlapping windows beside sliding ones, for one split.

    Empty text when no length was measured in both ways.
    """
    compared = [
        (model.label, length, found)
        for model in series(points)
        for length, found in _by_length(model.points).items()
        if len(found) > 1 and "non-overlapping" in found
    ]
    sliding = sorted(
        {p.stride for *_, found in compared for p in found.values() if not p.nonoverlapping}
    )
    if not sliding:
        return ""
    headers = ["trained", "evaluated at", "non-overlapping"]
    for stride in sliding:
        headers += [f"S={stride}", "gain"]
    lines = []
    for label, length, found in compared:
        whole = found["non-overlapping"]
        line = [label, str(length), markdown.point(whole)]
        for stride in sliding:
            point = found.get(f"S={stride}")
            shown = markdown.NOTHING
            if point and point.perplexity is not None and whole.perplexity is not None:
                shown = markdown.difference(whole.perplexity - point.perplexity)
            line += [markdown.point(point), shown]
        lines.append(line)
    return markdown.table(headers, lines)


def _by_length(points: Iterable[Point]) -> dict[int, dict[str, Point]]:
    by_length: dict[int, dict[str, Point]] = defaultdict(dict)
    for point in points:
        by_length[point.length][point.inference] = point
    return by_length


def draw_strides(points: list[Point], title: str, *paths: os.PathLike) -> None:
    """Perplexity against length for each stride, one panel for each method.

    Args:
        points: of one split.
    """
    methods = sorted({p.position_method for p in points}, key=method_order)
    strides = sorted({p.stride for p in points if not p.nonoverlapping})
    styles = dict(zip(["non-overlapping", *(f"S={n}" for n in strides)], cycle(_LINE_STYLES)))
    with style.figure(title, len(methods)) as (figure, panels):
        for axes, method in zip(panels, methods, strict=True):
            own = [p for p in points if p.position_method == method and p.perplexity is not None]
            lengths = sorted({p.train_length for p in own})
            seen: Counter = Counter()
            for model in series(own):
                length = model.points[0].train_length
                plain = style.length_look("alibi", length, lengths)
                line = plain.variant(seen[length]).line()
                seen[length] += 1
                for inference, linestyle in styles.items():
                    found = {
                        p.length: p.perplexity
                        for p in model.points
                        if p.inference == inference and p.perplexity is not None
                    }
                    if found:
                        label = model.label.partition(", ")[2] + f", {inference}"
                        look = line | {"linestyle": linestyle}
                        axes.plot(list(found), list(found.values()), label=label, **look)
            style.length_axis(axes, [p.length for p in own])
            style.perplexity_axis(axes, [p.perplexity for p in own if p.perplexity is not None])
            axes.set_title(method_name(method))
        style.legend(figure, panels)
        style.save(figure, *paths)


@dataclass(frozen=True)
class Position:
    """The loss of one model in a bucket of positions; the mean of several seeds, with its spread."""

    begin: int
    end: int
    loss_bits: float
    spread: float | None = None

    @property
    def middle(self) -> float:
        """Geometric middle of the contexts: position p has p + 1 tokens of context."""
        return math.sqrt((self.begin + 1) * self.end)


def position_series(document: dict) -> dict[str, list[Position]]:
    """The cells of a ``position_loss`` document by line of its plot, in order of position.

    Seeds are averaged; runs that differ in anything else have lines of their own.
    """
    of_model: dict[tuple, dict[Point, list[dict]]] = defaultdict(lambda: defaultdict(list))
    for point, cell in zip(evaluation_points(document), document["cells"], strict=True):
        key = tuple(cell[name] for name in ("position_method", "train_length", *_WINDOW))
        of_model[key][replace(point, tokens=None)].append(cell)
    shared = shared_window(document)
    lines: dict[str, list[dict]] = defaultdict(list)
    for (method, train_length, *window), members in of_model.items():
        parts = [model_label(method, train_length)]
        parts += [part for part in window_parts(*window) if part not in shared]
        label = ", ".join(parts)
        for point, variant in variant_names(members).items():
            lines[f"{label} ({variant})" if variant else label] += members[point]
    return {label: _positions(cells) for label, cells in sorted(lines.items())}


#: What is said once if all lines share it.
_WINDOW = ("subset", "length", "stride")


def window_parts(subset: str, length: int, stride: int) -> list[str]:
    """``["valid", "evaluated at 512", "S=1"]``."""
    inference = "non-overlapping" if stride == length else f"S={stride}"
    return [subset, f"evaluated at {length}", inference]


def shared_window(document: dict) -> list[str]:
    """The parts that hold for all cells."""
    found = [window_parts(*(cell[key] for key in _WINDOW)) for cell in document["cells"]]
    return [part for part in found[0] if all(part in parts for parts in found)]


def _positions(cells: list[dict]) -> list[Position]:
    buckets: dict[tuple[int, int], list[float]] = defaultdict(list)
    for cell in cells:
        buckets[cell["position_from"], cell["position_to"]].append(cell["loss_bits"])
    return [
        Position(
            *bucket,
            statistics.fmean(losses),
            statistics.stdev(losses) if len(losses) > 1 else None,
        )
        for bucket, losses in sorted(buckets.items())
    ]


def position_table(document: dict) -> str:
    """Loss in bits per token by position in the window, one column per model and evaluation."""
    lines = position_series(document)
    buckets = sorted({(each.begin, each.end) for line in lines.values() for each in line})
    rows = []
    for begin, end in buckets:
        row = [str(begin) if end == begin + 1 else f"{begin}–{end - 1}"]
        for line in lines.values():
            found = [each for each in line if (each.begin, each.end) == (begin, end)]
            row.append(_loss(found[0]) if found else markdown.NOTHING)
        rows.append(row)
    return markdown.table(["position in the window", *lines], rows)


def _loss(position: Position) -> str:
    spread = "" if position.spread is None else f" ± {position.spread:.3f}"
    return f"{position.loss_bits:.3f}{spread}"


def draw_positions(document: dict, title: str, *paths: os.PathLike) -> None:
    """A ``position_loss`` document: loss against the context a prediction had in its window.

    Seeds make one line, with a band of one standard deviation.
    """
    lines = position_series(document)
    with style.figure(title) as (figure, [axes]):
        for place, (label, line) in enumerate(lines.items()):
            look = style.numbered_look(place)
            middles = [each.middle for each in line]
            axes.plot(middles, [each.loss_bits for each in line], label=label, **look.line())
            if any(each.spread for each in line):
                gaps = [(each.loss_bits, each.spread or 0.0) for each in line]
                low, high = [loss - gap for loss, gap in gaps], [loss + gap for loss, gap in gaps]
                style.band(axes, middles, low, high, look.color)
        first = min(each.begin + 1 for line in lines.values() for each in line)
        last = max(each.end for line in lines.values() for each in line)
        style.length_axis(axes, _powers_of_two(first, last))
        axes.set_xlabel("Context in the window (tokens)")
        axes.set_ylabel("Loss (bits per token)")
        lengths = {cell["train_length"] for cell in document["cells"]}
        if len(lengths) == 1:
            style.mark_training_length(axes, *lengths)
        style.legend(figure, [axes])
        style.save(figure, *paths)


def _powers_of_two(lowest: int, highest: int) -> list[int]:
    powers = range(int(math.log2(max(1, lowest))), math.ceil(math.log2(highest)) + 1)
    step = max(1, len(powers) // 7)
    return [2**power for power in powers[::step]]
