"""The early-token curse (paper section 5, Appendix B) as tables.

A prediction early in a window has little context. Windows that do not overlap therefore get better
when they get longer, also for a model that uses no longer context at all; with S=1 every
prediction has all the context there is, and that part of the gain is gone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from alibi_fairseq.reporting import markdown
from alibi_fairseq.results.points import Point, Run, labels, runs


def strides_compared(points: Iterable[Point]) -> dict[Run, dict[int, dict[str, Point]]]:
    """Points by run, length and way of cutting, where a length was measured in both ways."""
    compared: dict[Run, dict[int, dict[str, Point]]] = {}
    for run, members in runs(points).items():
        by_length: dict[int, dict[str, Point]] = defaultdict(dict)
        for point in members:
            by_length[point.length][point.inference] = point
        both = {
            length: found
            for length, found in by_length.items()
            if len(found) > 1 and "non-overlapping" in found
        }
        if both:
            compared[run] = both
    return compared


def stride_table(points: Iterable[Point]) -> str:
    """Non-overlapping windows beside sliding ones at each length, for one split.

    Empty text when no length was measured in both ways.
    """
    compared = strides_compared(points)
    sliding = sorted(
        {
            point.stride
            for lengths in compared.values()
            for found in lengths.values()
            for point in found.values()
            if not point.nonoverlapping
        }
    )
    if not sliding:
        return ""
    headers = ["trained", "evaluated at", "non-overlapping"]
    for stride in sliding:
        headers += [f"S={stride}", "gain"]
    lines = []
    for run, lengths in compared.items():
        for length, found in lengths.items():
            whole = found["non-overlapping"].perplexity
            line = [run.label, str(length), markdown.perplexity(whole)]
            for stride in sliding:
                point = found.get(f"S={stride}")
                if point is None:
                    line += [markdown.MISSING, markdown.NOTHING]
                else:
                    gain = markdown.difference(whole - point.perplexity)
                    line += [markdown.perplexity(point.perplexity), gain]
            lines.append(line)
    return markdown.table(headers, lines)


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
    run = Run(cell["position_method"], cell["train_length"])
    cut = "non-overlapping" if cell["stride"] == cell["length"] else f"S={cell['stride']}"
    return f"{run.label}, evaluated at {cell['length']}, {cut}"


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
