"""The page of a study: the claims with their verdicts, the figure, and the comparisons behind each claim."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..files import atomic_write
from ..reporting import markdown
from ..reporting.own_results import without_length
from ..reporting.plots import Line, Panel, draw, draw_panels, method_look
from ..results.points import Point, method_name, series
from .bootstrap import LEVEL
from .claims import CLAIMS, Claim, Results

LATER = "Later papers"


def write_page(
    title: str, note: str, results: Results, missing: Mapping[str, Sequence[int]], folder: Path
) -> Path:
    """Write ``README.md`` and its figures into the results folder.

    Args:
        note: Markdown under the title.
        missing: models that are not finished, the most important first, and their seeds.
    """
    verdicts = [[c.title, c.source, c.verdict(results)] for c in CLAIMS if not c.later]
    parts = [f"# {title}", note, markdown.table(["claim", "the paper", "here"], verdicts, left=3)]
    if results.points:
        draw_lengths(title, results.points, folder / "study.png")
        parts.append("![Perplexity by evaluation length](study.png)")
    if results.curves:
        draw_training(results.curves, folder / "training.png")
        parts.append("![Validation perplexity in training](training.png)")
    parts.append(
        f"Changes are of perplexity in per cent, with {LEVEL:.0%} intervals over seeds and documents; "
        "[the rules](../../docs/experiments.md#the-papers-claims-with-small-models) were fixed before "
        "the models were trained. A comparison with one seed on a side decides nothing."
    )
    for claim in CLAIMS:
        if claim.later and f"## {LATER}" not in parts:
            parts.append(f"## {LATER}")
        parts += section(claim, results)
    if missing:
        left = [
            f"`{name}` (seed{'s' if len(of) > 1 else ''} {', '.join(map(str, of))})"
            for name, of in missing.items()
        ]
        parts += ["## Left out so far", ", ".join(left) + "."]
    path = folder / "README.md"
    with atomic_write(path) as stream:
        stream.write("\n\n".join(part.rstrip() for part in parts if part) + "\n")
    return path


def section(claim: Claim, results: Results) -> list[str]:
    """A claim's comparisons; nothing where there are none yet."""
    rows = []
    for finding in claim.findings(results):
        found, paper, seeds = finding.number, finding.paper, dict.fromkeys(finding.seeds)
        printed = markdown.NOTHING if math.isnan(paper) else percent(paper)
        interval = f"{percent(found.low)} … {percent(found.high)}"
        trained = " and ".join(map(str, seeds)) if any(seeds) else ""
        row = [finding.what, printed, percent(found.value), interval, trained, finding.verdict]
        rows.append(row)
    if not rows:
        return []
    verdict = claim.verdict(results)
    said = f"{claim.source} {claim.note}".rstrip() + (f" Here: **{verdict}**." if verdict else "")
    headers = ["comparison", "paper", "here", "interval", "seeds", ""]
    title = f"{'###' if claim.later else '##'} {claim.title}"
    return [title, said, markdown.table(headers, rows, left=1)]


def percent(value: float) -> str:
    """One decimal; two where it is small, none where it is large."""
    digits = 0 if abs(value) >= 1 else 1 if abs(value) >= 0.01 else 2
    return f"{100 * value:+,.{digits}f} %"


def draw_training(curves: Mapping, path: Path) -> None:
    """Validation perplexity by updates, a panel for each training length."""
    lines: dict[int, list[Line]] = {}
    for (method, length), curve in curves.items():
        updates = sorted(curve)
        perplexities = [2 ** statistics.fmean(curve[each]) for each in updates]
        line = Line(method_name(method), updates, perplexities, method_look(method))
        lines.setdefault(length, []).append(line)
    panels = [
        Panel(f"trained at {length}", found, "Updates", over_length=False)
        for length, found in sorted(lines.items())
    ]
    title = "Validation perplexity in training, mean over the seeds"
    draw(title, panels, path, path.with_suffix(".svg"))


def draw_lengths(title: str, points: Sequence[Point], path: Path) -> None:
    """A panel for each training length of several methods, of the corpus with most models."""
    texts = [point.corpus for point in points]
    main = max(dict.fromkeys(texts), key=texts.count)
    by_length: dict[int, list[Point]] = {}
    for point in points:
        if point.corpus == main:
            by_length.setdefault(point.train_length, []).append(point)
    panels = {
        f"trained at {length}": without_length(series(found))
        for length, found in sorted(by_length.items())
        if len({point.position_method for point in found}) > 2
    }
    draw_panels(title, panels or {"": series(points)}, path, path.with_suffix(".svg"))
