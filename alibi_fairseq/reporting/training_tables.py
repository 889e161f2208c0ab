"""Training documents as a table: where each run ended and what it took."""

from __future__ import annotations

from collections import defaultdict

from alibi_fairseq.reporting import markdown
from alibi_fairseq.results.points import Run, labels, method_order


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
    return Run(cell["position_method"], cell["train_length"]).label


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
