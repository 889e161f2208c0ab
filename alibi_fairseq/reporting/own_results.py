"""The part of a report about our own measurements, whatever text they were made on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import partial

from alibi_fairseq.paper import published as paper
from alibi_fairseq.reporting import (
    early_token_curse,
    perplexity_by_length,
    training_curves,
)
from alibi_fairseq.reporting.collect import Results
from alibi_fairseq.reporting.markdown import Report, literal
from alibi_fairseq.results.points import (
    Point,
    Text,
    document_points,
    series,
    size_text,
    text_names,
)


def perplexities(report: Report, results: Results) -> None:
    groups: dict[tuple, list[Point]] = defaultdict(list)
    for point in results.points:
        groups[point.corpus, point.model].append(point)
    for (corpus, _), points in sorted(groups.items(), key=lambda item: str(item[0])):
        title = _title(results, points, len(groups))
        report.text(f"## {literal(title)}\n")
        if corpus not in paper.corpora():
            report.text(
                f"{literal(corpus)} is not a text of the paper: its numbers do not compare.\n"
            )
        elif reasons := {point.unlike_paper: None for point in points if point.unlike_paper}:
            listed = literal("; ".join(reasons))
            report.text(f"Not all of this compares with the paper's numbers: {listed}.\n")
        report.table(
            f"{title} lengths", f"{title}: perplexity", perplexity_by_length.length_table(points)
        )
        if len({point.length for point in points}) > 1:
            draw = partial(perplexity_by_length.draw_lengths, points, title)
            report.figure(f"{title} lengths", f"{title}: perplexity by evaluation length", draw)
        _strides(report, title, points)


def _title(results: Results, points: list[Point], groups: int) -> str:
    """The text and the model, with its size where that is one and the same."""
    corpus, model = points[0].corpus, points[0].model
    title = results.title or f"{corpus}"
    if results.title is not None and groups == 1:
        return title
    if results.title is not None and len({point.corpus for point in results.points}) > 1:
        title += f": {corpus}"
    sizes = {(point.layers, point.width) for point in points}
    size = size_text(*sizes.pop(), None) if len(sizes) == 1 else ""
    return title + "".join(f", {part}" for part in (model, size) if part)


def _strides(report: Report, title: str, points: list[Point]) -> None:
    """Tables and figures of windows that slide, each about one text."""
    names = text_names(point.text for point in points)
    for text, name in sorted(names.items(), key=str):
        own = [point for point in points if point.text == text]
        body = early_token_curse.stride_table(own)
        if not body:
            continue
        what = ", ".join(filter(None, (title, text[0], name)))
        report.table(f"{what} strides", f"{what}: non-overlapping and sliding windows", body)
        report.figure(
            f"{what} strides",
            f"{what}: the early-token curse. Solid: non-overlapping windows; dashed: sliding.",
            partial(early_token_curse.draw_strides, own, what),
        )


def other_documents(report: Report, results: Results) -> None:
    for name, points in _by_text(results.of_kind("position_loss")):
        corpus = points[0].corpus
        parts = ", ".join([f"{corpus}", *early_token_curse.shared_window(points)])
        title = f"{results.title or parts}{name}: loss in bits per token by position in the window"
        body = early_token_curse.position_table(points)
        report.table(f"{corpus}{name} positions", title, body)
        draw = partial(early_token_curse.draw_positions, points, title)
        report.figure(f"{corpus}{name} positions", title, draw)
    for name, points in _by_text(results.of_kind("training")):
        corpus = points[0].corpus
        title = f"{results.title or corpus}{name}: training"
        name = f"{corpus}{name} training"
        report.table(name, title, training_curves.training_table(points))
        if any(len(line.points) > 1 for line in series(points, over="updates")):
            report.figure(name, title, partial(training_curves.draw_training, points, title))


def _by_text(documents: Iterable[dict]) -> Iterator[tuple[str, list[Point]]]:
    """The points of documents of one kind by text, each once.

    Each with what its title must add: nothing for the only text of a corpus.
    """
    corpora: dict[str | None, dict[Text, dict[Point, None]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for point in document_points(*documents):
        corpora[point.corpus][point.text][point] = None
    for texts in corpora.values():
        names, splits = text_names(texts), {subset for subset, *_ in texts}
        for text, points in texts.items():
            parts = [text[0] if len(splits) > 1 else "", names[text]]
            yield "".join(f", {part}" for part in parts if part), [*points]
