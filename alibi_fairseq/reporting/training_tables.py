"""Training documents as a table: where each run ended and what it took."""

from __future__ import annotations

from collections import defaultdict

from alibi_fairseq.reporting import markdown
from alibi_fairseq.reporting.points import Run, method_order, told_apart


def training_table(document: dict) -> str:
    """The last cell of each run and split: updates, loss, perplexity and cost."""
    keys = ("subset", "length", "model", "checkpoint", "seed", "precision")
    lines: dict[tuple[Run, str], list[dict]] = defaultdict(list)
    for cell, suffix in zip(document["cells"], told_apart(document["cells"], keys), strict=True):
        lines[Run(cell["position_method"], cell["train_length"]), suffix].append(cell)
    rows = []
    for run, suffix in sorted(lines, key=lambda k: (method_order(k[0].position_method), k)):
        last = max(lines[run, suffix], key=lambda cell: cell["updates"])
        rows.append(
            [
                run.label + suffix,
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
