"""The part of a report that follows the paper: its tables and figures, ours beside."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from alibi_fairseq.reporting import (
    more_figures,
    paper,
    paper_figures,
    paper_tables,
    speed_tables,
)
from alibi_fairseq.reporting.collect import Results
from alibi_fairseq.reporting.page import Report, drawing


def speed(report: Report, results: Results) -> None:
    documents = results.of_kind("benchmark")
    report.text("## Beside the paper\n")
    about = paper.about("table01")
    title = f"{about['name']}. {about['content']}"
    report.table("table01", title, speed_tables.speed_table(documents), paper.notes("table01"))
    report.figure(
        "figure02", "Figure 2 in kind: speed and memory in the paper", more_figures.draw_paper_speed
    )
    for group in speed_tables.speeds(documents):
        caption = f"Speed and memory, measured: {group.machine}"
        report.figure("speed", caption, drawing(more_figures.draw_speed, group))


def perplexities(report: Report, results: Results) -> None:
    for item in paper_tables.PERPLEXITY_TABLES:
        about = paper.about(item)
        corpus = about["corpus"]
        model = next(row["model"] for row in paper.rows("settings") if row["corpus"] == corpus)
        body = paper_tables.perplexity_table(
            item,
            results.comparable.get(corpus, []),
            results.comparable_training(corpus, model),
        )
        title = f"{about['name']}. {corpus}: {about['content']}"
        report.table(item, title, body, paper.notes(item))
        for name, caption, draw in _FIGURES_AFTER.get(item, ()):
            notes = "; ".join(paper.notes(name))
            report.figure(name, f"{caption}. {notes}".rstrip(" ."), drawing(draw, results))
    report.table(
        "replications",
        "The same cells measured by others",
        paper_tables.replication_table(),
    )


def _with_ours(draw: Callable[..., None]) -> Callable[..., None]:
    return lambda results, *paths: draw(results.comparable, *paths)


def _without_ours(draw: Callable[..., None]) -> Callable[..., None]:
    return lambda results, *paths: draw(*paths)


def _figure05(results: Results, *paths: Path) -> None:
    paper_figures.figure05(results.comparable_training("cc100-roberta", "alibi_lm_1b3"), *paths)


_FIGURES_AFTER: dict[str, tuple[tuple[str, str, Callable[..., None]], ...]] = {
    "table04": (
        (
            "figure01",
            "Figure 1 in kind: beyond the training length",
            _with_ours(paper_figures.figure01),
        ),
    ),
    "table05": (
        (
            "figure04",
            "Figure 4 in kind: ALiBi by training length",
            _with_ours(paper_figures.figure04),
        ),
        (
            "figure07",
            "Figure 7 in kind: training speed by training length",
            _without_ours(paper_figures.figure07),
        ),
        (
            "figure08",
            "Figure 8 in kind: quality at length 3072 by training speed",
            _without_ours(paper_figures.figure08),
        ),
    ),
    "table08": (
        (
            "figure10",
            "Figure 10 in kind: ALiBi by training length on books",
            _with_ours(paper_figures.figure10),
        ),
    ),
    "table11": (("figure05", "Figure 5 in kind: 1.3B parameters, end points", _figure05),),
    "table12": (
        (
            "figure06",
            "Figure 6 in kind: 1.3B parameters beyond the training length",
            _with_ours(paper_figures.figure06),
        ),
    ),
    "table15": (
        (
            "figure11",
            "Figure 11 in kind: sliding window S=1 beside non-overlapping windows",
            _with_ours(paper_figures.figure11),
        ),
    ),
}
