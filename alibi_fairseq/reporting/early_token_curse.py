"""The early-token curse (paper section 5, Appendix B): sliding windows, and loss by position.

A prediction early in a window has little context. Non-overlapping windows therefore get better as
they get longer, even for a model that uses no longer context at all; with S=1 every prediction has
as much context as there is, and that part of the gain is gone.
"""

from __future__ import annotations

import math
import os
from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import cycle

from alibi_fairseq.reporting import markdown, style
from alibi_fairseq.results.points import (
    Point,
    labels,
    method_name,
    method_order,
    model_label,
    series,
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


def position_series(document: dict) -> dict[str, list[dict]]:
    """The cells of a ``position_loss`` document by line of its plot, in order of position."""
    series: dict[str, list[dict]] = defaultdict(list)
    keys = ("subset", "model", "updates", "checkpoint", "seed", "precision", "model_overrides")
    cells = document["cells"]
    for label, cell in zip(labels(cells, _evaluation_label, keys), cells, strict=True):
        series[label].append(cell)
    return {
        label: sorted(cells, key=lambda cell: cell["position_from"])
        for label, cells in sorted(series.items())
    }


def _evaluation_label(cell: dict) -> str:
    model = model_label(cell["position_method"], cell["train_length"])
    inference = "non-overlapping" if cell["stride"] == cell["length"] else f"S={cell['stride']}"
    return f"{model}, evaluated at {cell['length']}, {inference}"


def position_table(document: dict) -> str:
    """Loss in bits per token by position in the window, one column per model and evaluation."""
    series = position_series(document)
    ranges = sorted({(c["position_from"], c["position_to"]) for c in document["cells"]})
    lines = []
    for begin, end in ranges:
        shown = str(begin) if end == begin + 1 else f"{begin}–{end - 1}"
        line = [shown]
        for cells in series.values():
            found = [c for c in cells if (c["position_from"], c["position_to"]) == (begin, end)]
            line.append(f"{found[0]['loss_bits']:.3f}" if found else markdown.NOTHING)
        lines.append(line)
    return markdown.table(["position in the window", *series], lines)


def draw_positions(document: dict, *paths: os.PathLike) -> None:
    """A ``position_loss`` document: loss against the context a prediction had in its window."""
    series = position_series(document)
    with style.figure(f"{document['corpus']}: loss by position") as (figure, [axes]):
        contexts = []
        for place, (label, cells) in enumerate(series.items()):
            # Position p has p + 1 tokens of context; a bucket is drawn at its geometric middle.
            middles = [math.sqrt((c["position_from"] + 1) * c["position_to"]) for c in cells]
            contexts += [cells[0]["position_from"] + 1, cells[-1]["position_to"]]
            axes.plot(
                middles,
                [cell["loss_bits"] for cell in cells],
                label=label,
                **style.numbered_look(place).line(),
            )
        style.length_axis(axes, _powers_of_two(min(contexts), max(contexts)))
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
