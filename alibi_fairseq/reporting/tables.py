"""Tables of our own measurements; those beside the paper's are in paper_tables.py."""

from __future__ import annotations

import csv
import io

from alibi_fairseq.reporting import markdown
from alibi_fairseq.results.points import Point, evaluation_points, runs


def length_table(document: dict) -> str:
    """An evaluation document as Markdown: perplexity, one row per model, one column per length.

    One table for each split and way of cutting the text (non-overlapping, S=1, …), each under a
    line that says which.
    """
    return length_tables(evaluation_points(document))


def length_tables(points: list[Point]) -> str:
    """:func:`length_table` for points."""
    return "\n".join(
        f"Perplexity on {subset}, {inference}:\n\n{_length_table(part)}"
        for (subset, inference), part in split_by_inference(points).items()
    )


def split_by_inference(points: list[Point]) -> dict[tuple[str, str], list[Point]]:
    """Points by split and way of cutting the text: valid first, non-overlapping first."""
    parts: dict[tuple[str, str], list[Point]] = {}
    for point in sorted(points, key=_inference_order):
        parts.setdefault((point.subset, point.inference), []).append(point)
    return parts


def _inference_order(point: Point) -> tuple:
    overlap = 0 if point.nonoverlapping else point.stride
    return (point.subset != "valid", point.subset, not point.nonoverlapping, overlap)


def _length_table(points: list[Point]) -> str:
    lengths = sorted({point.length for point in points})
    rows = []
    for run, members in runs(points).items():
        at = {point.length: point for point in members}
        shorter = {length: markdown.NOTHING for length in lengths if length < run.train_length}
        shown = shorter | {length: _shown(point) for length, point in at.items()}
        rows.append([run.label, *(shown.get(length, markdown.MISSING) for length in lengths)])
    return markdown.table(["trained ↓ evaluated at →", *map(str, lengths)], rows)


def _shown(point: Point) -> str:
    if point.spread is None:
        return markdown.perplexity(point.perplexity)
    return f"{markdown.perplexity(point.perplexity)} ± {point.spread:.2f} ({point.seeds} seeds)"


_CSV_COLUMNS = ("position_method", "train_length", "length", "stride", "subset", "tokens")
_CSV_MEASURES = ("loss_bits", "perplexity")


def length_csv(document: dict) -> str:
    """An evaluation document as CSV, one line per cell, in the order of the document."""
    stream = io.StringIO()
    columns = [*_CSV_COLUMNS, *_CSV_MEASURES]
    writer = csv.DictWriter(stream, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(document["cells"])
    return stream.getvalue()
