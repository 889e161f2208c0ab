"""``alibi-fairseq eval``: perplexity at any length and stride."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..data.probes import SETTINGS
from ..reporting import markdown
from ..reporting.markdown import CHANCE_NOTE
from ..results.points import is_chance

#: Column title, key of the cell, format.
_COLUMNS: list[tuple[str, str, Callable[[Any], str]]] = [
    ("checkpoint", "checkpoint", lambda value: "/".join(Path(value).parts[-2:])),
    ("positions", "position_method", str),
    ("trained at", "train_length", str),
    ("split", "subset", str),
    ("L", "length", str),
    ("S", "stride", str),
    ("min ctx", "min_context", str),
    ("mean ctx", "mean_context", "{:.1f}".format),
    ("tokens", "tokens", "{:,}".format),
    ("bits/token", "loss_bits", "{:.4f}".format),
    ("perplexity", "perplexity", markdown.perplexity),
    ("per word", "word_perplexity", markdown.perplexity),
    ("bits/byte", "bits_per_byte", "{:.4f}".format),
    ("tokens/s", "tokens_per_second", "{:,.0f}".format),
    ("peak MB", "peak_memory_mb", "{:,.0f}".format),
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from .sweep_options import add_sweep_arguments

    add_sweep_arguments(parser)
    parser.add_argument(
        "--tensorboard-logdir",
        metavar="DIR",
        help="also log the results to this TensorBoard folder, usually that of the training run",
    )


def run(args: argparse.Namespace) -> int:
    from ..evaluation.probe import run_probe
    from ..evaluation.sweep import run_sweep
    from ..reporting.probes import accuracy_table
    from .experiment_options import wants_slurm
    from .sweep_options import submit_shards, sweep_of

    if (args.data / SETTINGS).is_file():
        print(f"{accuracy_table(run_probe(sweep_of(args)))}\nResults: {args.out}")
        return 0
    if wants_slurm(args):
        return submit_shards(args)

    def log(cell: dict) -> None:
        if args.tensorboard_logdir:
            log_to_tensorboard(Path(args.tensorboard_logdir), cell)

    cells = run_sweep(sweep_of(args), on_cell=log)
    print(evaluation_table(cells))
    if any(is_chance(cell["perplexity"], cell.get("vocabulary")) for cell in cells):
        print(f"\nSome are near {CHANCE_NOTE}")
    print(f"\nL: window length, S: stride, ctx: context per token. Results: {args.out}")
    return 0


def evaluation_table(cells: list[dict]) -> str:
    """Aligned text table, one line per evaluation cell; columns that no cell has are left out."""
    columns = [column for column in _COLUMNS if any(column[1] in cell for cell in cells)]
    rows = [[title for title, _, _ in columns]]
    for cell in cells:
        values = [(cell.get(key), write) for _, key, write in columns]
        rows.append(["–" if value is None else write(value) for value, write in values])
    widths = [max(len(row[i]) for row in rows) for i in range(len(columns))]
    lines = ["  ".join(text.rjust(width) for text, width in zip(row, widths)) for row in rows]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def log_to_tensorboard(folder: Path, cell: dict) -> None:
    """Add a cell to TensorBoard as a point whose step is the window length.

    Args:
        folder: log folder of the training run. Each checkpoint gets a subfolder of its own, so that
            TensorBoard shows one curve per checkpoint.
    """
    from torch.utils.tensorboard import SummaryWriter

    full = cell["stride"] == cell["length"]
    series = f"{cell['subset']}/{'non-overlapping' if full else 'stride ' + str(cell['stride'])}"
    name = f"eval_{cell['position_method']}_{Path(cell['checkpoint']).stem}"
    with SummaryWriter(str(folder / name)) as writer:
        for key in ("loss_bits", "perplexity"):
            writer.add_scalar(f"{key} by length/{series}", cell[key], cell["length"])
