"""Figures of strides, of positions in the window, of training, and of speed and memory."""

from __future__ import annotations

import math
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import cycle

from matplotlib.axes import Axes

from alibi_fairseq.reporting import paper, style
from alibi_fairseq.reporting.context_tables import position_series
from alibi_fairseq.reporting.speed_tables import EVALUATION, TRAINING, Speeds
from alibi_fairseq.reporting.training_tables import training_lines
from alibi_fairseq.results.points import Point, method_name, method_order, runs

_CUTS = ("-", "--", ":", "-.")  # non-overlapping first, then the strides in order


def draw_strides(
    points: list[Point],
    title: str,
    *paths: os.PathLike,
    printed: Sequence[Point] = (),
) -> None:
    """Perplexity against length for each stride, one panel for each method.

    Args:
        points: ours, of one split.
        printed: the paper's.
    """
    everything = [*points, *printed]
    methods = sorted({p.position_method for p in everything}, key=method_order)
    strides = sorted({p.stride for p in everything if not p.nonoverlapping})
    cuts = dict(zip(["non-overlapping", *(f"S={stride}" for stride in strides)], cycle(_CUTS)))
    with style.figure(title, len(methods)) as (figure, panels):
        for axes, method in zip(panels, methods, strict=True):
            own, theirs = (
                [p for p in source if p.position_method == method and p.perplexity is not None]
                for source in (points, printed)
            )
            both = own + theirs
            lengths = sorted({p.train_length for p in both})
            for source, suffix in ((theirs, " (paper)"), (own, "")):
                seen: Counter = Counter()
                for run, members in runs(source).items():
                    look = style.length_look("alibi", run.train_length, lengths)
                    line = look.variant(seen[run.train_length]).line(hollow=bool(suffix))
                    seen[run.train_length] += 1
                    for cut, linestyle in cuts.items():
                        if cells := [p for p in members if p.inference == cut]:
                            label = run.label.partition(", ")[2] + f", {cut}{suffix}"
                            at = ([p.length for p in cells], [p.perplexity for p in cells])
                            axes.plot(*at, label=label, **line | {"linestyle": linestyle})
            style.length_axis(axes, [p.length for p in both])
            style.perplexity_axis(axes, [p.perplexity for p in both])
            axes.set_title(method_name(method))
        style.legend(figure, panels)
        for path in paths:
            style.save(figure, path)


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
        for path in paths:
            style.save(figure, path)


def _powers_of_two(lowest: int, highest: int) -> list[int]:
    powers = range(int(math.log2(max(1, lowest))), math.ceil(math.log2(highest)) + 1)
    step = max(1, len(powers) // 7)
    return [2**power for power in powers[::step]]


def draw_training(document: dict, *paths: os.PathLike) -> None:
    """A ``training`` document: perplexity against updates, one line for each run and split."""
    with style.figure(f"{document['corpus']}: training") as (figure, [axes]):
        for place, (label, cells) in enumerate(training_lines(document).items()):
            perplexities = [2 ** cell["loss_bits"] for cell in cells]
            look = style.numbered_look(place).line() | {"markevery": max(1, len(cells) // 12)}
            axes.plot([cell["updates"] for cell in cells], perplexities, label=label, **look)
        style.perplexity_axis(axes, [2 ** cell["loss_bits"] for cell in document["cells"]])
        axes.set_xlabel("Updates")
        style.legend(figure, [axes])
        for path in paths:
            style.save(figure, path)


def training_line(axes: Axes, cells: Iterable[dict], label: str, look: style.Look) -> None:
    """Perplexity against GPU hours of one training run, where the hours are known."""
    known = sorted((c for c in cells if "gpu_hours" in c), key=lambda c: c["gpu_hours"])
    if known:
        hours = [cell["gpu_hours"] for cell in known]
        axes.plot(hours, [2 ** c["loss_bits"] for c in known], label=label, **look.line())


def draw_paper_speed(*paths: os.PathLike) -> None:
    """Figure 2 and Table 1 of the paper: speed and memory of each method on one V100."""
    rows = paper.rows("table01")
    columns = (
        ("train_words_per_second", 1000, "Training (thousand words per second)"),
        ("eval_words_per_second", 1000, "Evaluation (thousand words per second)"),
        ("train_memory_gb", 1, "Training memory (GB)"),
    )
    bars = [
        (axis, {(r["position_method"], r["train_length"]): r[key] / unit for r in rows})
        for key, unit, axis in columns
    ]
    _draw_bars(bars, "The paper, one V100", *paths)


def draw_speed(group: Speeds, *paths: os.PathLike) -> None:
    """The same for our measurements on one machine; a bar for each method and backend."""
    columns = (
        (TRAINING, "tokens_per_second", 1000, "Training (thousand tokens per second)"),
        (EVALUATION, "tokens_per_second", 1000, "Evaluation (thousand tokens per second)"),
        (TRAINING, "peak_memory_mb", 1000, "Training memory (GB)"),
    )
    backends = defaultdict(set)
    for method, _, backend in group.cases:
        backends[method].add(backend)
    bars = []
    for phase, key, unit, axis in columns:
        values = {}
        for (method, length, backend), cells in group.cases.items():
            value = cells.get(phase, {}).get(key)
            if value is not None:
                name = method if len(backends[method]) == 1 else f"{method} {backend}"
                values[name, length] = value / unit
        if values:
            bars.append((axis, values))
    if bars:
        _draw_bars(bars, group.machine, *paths)


def _draw_bars(
    panels: list[tuple[str, dict[tuple[str, int], float]]], title: str, *paths: os.PathLike
) -> None:
    """Panels of bars grouped by length, one bar for each method, told apart by hatches as well."""
    names = sorted({name for _, bars in panels for name, _ in bars}, key=_bar_order)
    width = 0.8 / len(names)
    with style.figure(title, len(panels)) as (figure, axes):
        for panel, (label, bars) in zip(axes, panels, strict=True):
            lengths = sorted({length for _, length in bars})
            for place, name in enumerate(names):
                method, _, backend = name.partition(" ")
                own = [(i, bars[name, n]) for i, n in enumerate(lengths) if (name, n) in bars]
                panel.bar(
                    [i + (place - (len(names) - 1) / 2) * width for i, _ in own],
                    [value for _, value in own],
                    width,
                    label=f"{method_name(method)} {backend}".strip(),
                    color=style.method_look(method).color,
                    edgecolor="white",
                    hatch=style.hatch(place),
                    linewidth=0.5,
                )
            panel.set_xticks(range(len(lengths)), [f"L={length}" for length in lengths])
            panel.set_title(label)
            panel.grid(axis="x", visible=False)
        style.legend(figure, axes)
        for path in paths:
            style.save(figure, path)


def _bar_order(name: str) -> tuple:
    method, _, backend = name.partition(" ")
    return (*method_order(method), backend)
