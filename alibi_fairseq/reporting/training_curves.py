"""Training results: where each run ended and what it took, and its validation curve."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable

from matplotlib.axes import Axes

from alibi_fairseq.reporting import markdown, style
from alibi_fairseq.results.points import labels, method_order, model_label


def training_lines(document: dict) -> dict[str, list[dict]]:
    """The cells of a training document by run and split, in order of updates."""
    keys = ("subset", "length", "model", "checkpoint", "seed", "precision")
    cells = sorted(document["cells"], key=_order)
    lines: dict[str, list[dict]] = defaultdict(list)
    for label, cell in zip(labels(cells, _run_label, keys), cells, strict=True):
        lines[label].append(cell)
    return dict(lines)


def _order(cell: dict) -> tuple:
    run = (method_order(cell["position_method"]), cell["train_length"], cell["subset"])
    return (*run, cell["updates"])


def _run_label(cell: dict) -> str:
    return model_label(cell["position_method"], cell["train_length"])


def training_table(document: dict) -> str:
    """The last cell of each run and split: updates, loss, perplexity and cost."""
    rows = []
    for label, cells in training_lines(document).items():
        last = cells[-1]
        rows.append(
            [
                label,
                last["subset"],
                str(last["updates"]),
                f"{last['loss_bits']:.3f}",
                markdown.perplexity(2 ** last["loss_bits"]),
                _optional(last, "tokens_per_second"),
                _optional(last, "peak_memory_mb"),
                _optional(last, "gpu_hours"),
            ]
        )
    headers = ["run", "split", "updates", "loss (bits)", "perplexity"]
    return markdown.table([*headers, "tokens/s", "memory (MB)", "GPU hours"], rows, left=2)


def _optional(cell: dict, key: str) -> str:
    value = cell.get(key)
    return markdown.NOTHING if value is None else f"{value:.4g}" if value < 100 else f"{value:.0f}"


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
        style.save(figure, *paths)


def training_line(axes: Axes, cells: Iterable[dict], label: str, look: style.Look) -> None:
    """Perplexity against GPU hours of one training run, where the hours are known."""
    known = sorted((c for c in cells if "gpu_hours" in c), key=lambda c: c["gpu_hours"])
    if known:
        hours = [cell["gpu_hours"] for cell in known]
        axes.plot(hours, [2 ** c["loss_bits"] for c in known], label=label, **look.line())
