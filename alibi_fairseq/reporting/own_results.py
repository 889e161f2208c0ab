"""The part of a report about our own measurements, whatever text they were made on."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from functools import partial

from alibi_fairseq.paper import published as paper
from alibi_fairseq.reporting import (
    early_token_curse,
    perplexity_by_length,
    speed,
    training_curves,
)
from alibi_fairseq.reporting.collect import Group, Results
from alibi_fairseq.reporting.markdown import Report, literal
from alibi_fairseq.results.points import Point, method_name, series, size_text


def perplexities(report: Report, results: Results) -> None:
    for group, points in sorted(results.measured.items(), key=lambda item: str(item[0])):
        title = _title(results, group, points)
        report.text(f"## {literal(title)}\n")
        corpus = group[0]
        if corpus not in paper.corpora():
            report.text(
                f"{literal(corpus)} is not a text of the paper: its numbers do not compare.\n"
            )
        elif group in results.reasons:
            reasons = literal("; ".join(results.reasons[group]))
            report.text(f"Not all of this compares with the paper's numbers: {reasons}.\n")
        report.table(
            f"{title} lengths", f"{title}: perplexity", perplexity_by_length.length_table(points)
        )
        for name, caption, panels in _length_panels(title, points):
            report.figure(name, caption, partial(perplexity_by_length.draw_panels, caption, panels))
        _strides(report, title, points)


def _title(results: Results, group: Group, points: Iterable[Point]) -> str:
    """The text and the model, with its size where that is one and the same."""
    corpus, model = group
    title = corpus if results.title is None else results.title
    if results.title is not None and len({name for name, _ in results.measured}) > 1:
        title += f": {corpus}"
    sizes = {(point.layers, point.width) for point in points}
    size = size_text(*sizes.pop(), None) if len(sizes) == 1 else ""
    if results.title is not None and len(results.measured) == 1:
        return title
    return title + "".join(f", {part}" for part in (model, size) if part)


def _length_panels(title: str, points: list[Point]) -> list[tuple[str, str, dict]]:
    """Name, caption and panels of the figures of perplexity against length.

    Few runs share a panel. Several methods at several training lengths give two figures: methods
    compared at each training length, and training lengths compared for each method.
    """
    found = []
    for (subset, inference), part in perplexity_by_length.split_by_inference(points).items():
        lines = series(part)
        if not perplexity_by_length.has_lines(lines):
            continue
        lengths = sorted({line.points[0].train_length for line in lines})
        methods = list(dict.fromkeys(line.position_method for line in lines))
        what = f"{title}, {subset}, {inference}"
        if len(lengths) == 1 or len(methods) == 1:
            found.append((f"{what} lengths", what, {"": lines}))
            continue
        by_length = {
            f"trained at L={length}": perplexity_by_length.without_length(
                line for line in lines if line.train_length == length
            )
            for length in lengths
        }
        by_method = {
            method_name(method): [line for line in lines if line.position_method == method]
            for method in methods
        }
        for name, caption, panels in (
            ("methods", "methods at each training length", by_length),
            ("lengths", "training lengths of each method", by_method),
        ):
            drawn = {title: p for title, p in panels.items() if perplexity_by_length.has_lines(p)}
            found.append((f"{what} {name}", f"{what}: {caption}", drawn))
    return found


def _strides(report: Report, title: str, points: list[Point]) -> None:
    for subset in sorted({point.subset for point in points}):
        own = [point for point in points if point.subset == subset]
        body = early_token_curse.stride_table(own)
        if not body:
            continue
        name = f"{title} {subset} strides"
        what = f"{title}, {subset}"
        report.table(name, f"{what}: non-overlapping and sliding windows", body)
        report.figure(
            name,
            f"{what}: the early-token curse. Solid: non-overlapping windows; dashed: sliding.",
            partial(early_token_curse.draw_strides, own, what),
        )


def other_documents(report: Report, results: Results) -> None:
    for document in one_per_corpus(results.of_kind("position_loss")):
        corpus = document["corpus"]
        title = ", ".join([corpus, *early_token_curse.shared_window(document)])
        title = f"{results.title or title}: loss in bits per token by position in the window"
        name = f"{corpus} positions"
        report.table(name, title, early_token_curse.position_table(document))
        report.figure(name, title, partial(early_token_curse.draw_positions, document, title))
    for document in one_per_corpus(results.of_kind("training")):
        name = f"{document['corpus']} training"
        title = f"{results.title or document['corpus']}: training"
        report.table(name, title, training_curves.training_table(document))
        lines = training_curves.training_lines(document).values()
        if any(len(cells) > 1 for cells in lines):
            report.figure(name, title, partial(training_curves.draw_training, document, title))
    for document in results.of_kind("benchmark"):
        if document["cells"]:
            machine = speed.machine_of(document["provenance"])
            body = speed.benchmark_tables(document)
            report.table("benchmark", f"Benchmark, {machine}", body)


def one_per_corpus(documents: Iterable[dict]) -> list[dict]:
    """Documents with the cells of all that are about the same text; a cell twice counts once."""
    found: dict[str, dict] = {}
    cells: dict[str, dict[str, dict]] = defaultdict(dict)
    for document in documents:
        corpus, seed = document["corpus"], document["provenance"]["seed"]
        found.setdefault(corpus, document)
        for cell in document["cells"]:
            cell = {"seed": seed, **cell}
            cells[corpus].setdefault(json.dumps(cell, sort_keys=True), cell)
    return [{**found[corpus], "cells": [*those.values()]} for corpus, those in cells.items()]
