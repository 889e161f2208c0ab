"""Training results: where each run ended and what it took, and its validation curve."""

from __future__ import annotations

import os
from collections.abc import Iterable

import numpy as np

from alibi_fairseq.paper import published as paper
from alibi_fairseq.reporting import markdown, plots
from alibi_fairseq.reporting.collect import Results
from alibi_fairseq.results.points import Point, caption, series


def training_table(points: Iterable[Point]) -> str:
    """The last validation of each run and split: updates, loss, perplexity and cost."""
    rows = []
    for line in series(points, over="updates"):
        last = line.points[-1]
        loss = [f"{last.loss_bits:.3f}", markdown.perplexity(2**last.loss_bits)]
        costs = (last.tokens_per_second, last.peak_memory_mb, last.gpu_hours)
        rows.append([line.label, last.subset, str(last.updates), *loss, *map(_optional, costs)])
    headers = ["run", "split", "updates", "loss (bits)", "perplexity"]
    return markdown.table([*headers, "tokens/s", "memory (MB)", "GPU hours"], rows, left=2)


def _optional(value: float | None) -> str:
    return markdown.NOTHING if value is None else f"{value:.4g}" if value < 100 else f"{value:.0f}"


def draw_training(points: list[Point], title: str, *paths: os.PathLike) -> None:
    """Perplexity against updates, one line for each run and split."""
    lines = [
        plots.Line(
            line.label,
            [point.updates or 0 for point in line.points],
            [2**point.loss_bits for point in line.points],
            plots.method_look(line.position_method),
        )
        for line in series(points, over="updates")
    ]
    panel = plots.Panel("", lines, "Updates", over_length=False)
    plots.draw(title, [panel], *paths, caption=caption(points))


def time_curve(results: Results, corpus: str, case: dict) -> list[tuple[float, float]]:
    """GPU hours and perplexity of the paper's model on the validation split, in order of time.

    The training's own validations where they were at the wanted length; at another length the
    evaluations of checkpoints that the run kept, at the hours it had taken until then.

    Args:
        case: ``position_method``, ``train_length`` and ``length`` of the evaluation.
    """
    run = [
        cell
        for cell in results.comparable_training(corpus)
        if "gpu_hours" in cell
        and all(cell[key] == case[key] for key in ("position_method", "train_length"))
    ]
    if not run:
        return []
    hours = {0: 0.0, **{cell["updates"]: cell["gpu_hours"] for cell in run}}
    updates = sorted(hours)
    found: dict[int, float] = {
        point.updates: point.perplexity
        for point in results.points
        if (point.corpus, point.model) == (corpus, paper.model(corpus))
        and all(getattr(point, key) == case[key] for key in case)
        and (point.nonoverlapping, point.subset, point.model_overrides) == (True, "valid", None)
        and point.perplexity is not None
        and point.updates is not None
        and point.updates <= updates[-1]
    }
    same_length = (cell for cell in run if cell.get("length") == case["length"])
    found |= {cell["updates"]: 2 ** cell["loss_bits"] for cell in same_length}
    at = np.interp(sorted(found), updates, [hours[count] for count in updates])
    return list(zip(at.tolist(), (found[count] for count in sorted(found)), strict=True))


def training_speeds(results: Results, corpus: str) -> dict[tuple[str, int], float]:
    """Tokens per second and process (GPU) of the paper's models, from their trainings' records.

    By position method and training length; of several runs the last one's.
    """
    return {
        (cell["position_method"], cell["train_length"]): cell["tokens_per_second"]
        / cell.get("processes", 1)
        for cell in sorted(results.comparable_training(corpus), key=lambda cell: cell["updates"])
        if "tokens_per_second" in cell
    }


def times_as_fast(
    fast: list[tuple[float, float]], slow: list[tuple[float, float]], samples: int = 5
) -> float | None:
    """How many times as fast one run reaches the perplexities of another (paper section 4.2).

    The mean over perplexities evenly spaced, on a logarithmic scale, in the range that both curves
    pass through; None where they share none.
    """
    if not fast or not slow:
        return None
    (fast_hours, fast_best), (slow_hours, slow_best) = _best_so_far(fast), _best_so_far(slow)
    first, last = min(fast_best[0], slow_best[0]), max(fast_best[-1], slow_best[-1])
    if first <= last:
        return None
    levels = -np.geomspace(first, last, samples)
    ratios = np.interp(levels, -slow_best, slow_hours) / np.interp(levels, -fast_best, fast_hours)
    return float(ratios.mean())


def _best_so_far(curve: list[tuple[float, float]]) -> tuple[np.ndarray, np.ndarray]:
    hours, perplexities = np.array(curve).T
    return hours, np.minimum.accumulate(perplexities)
