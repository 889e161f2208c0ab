"""Command ``alibi-fairseq eval``: perplexity at any length and stride."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..checkpoints.loading import require_file
from ..errors import UserInputError
from ..evaluation.checkpoint import PRECISIONS
from ..evaluation.data import DOCUMENTS
from ..evaluation.sweep import SweepConfig, run_sweep
from ..reporting import markdown
from ..reporting.probes import accuracy_table
from ..results.measurements import is_chance
from .options import CliCommand, fill_dataclass, names, option

# Types of options. argparse names the option in front of the error that they raise.


def folder_of(text: str) -> Path:
    """Return the first of several folders joined by ``:``."""
    return Path(text.split(":")[0])


def shortest(text: str) -> Path:
    """Return a path inside the working directory relative to it, because results record the path."""
    absolute = Path(text).resolve()
    working_directory = Path.cwd().resolve()
    if absolute.is_relative_to(working_directory):
        return absolute.relative_to(working_directory)
    return Path(text)


def lengths(text: str) -> list[int]:
    """Return ``512,1024`` as [512, 1024]."""
    return [int(item) for item in names(text)]


def strides(text: str) -> list[int | None]:
    """Return ``full,64`` as [None, 64]."""
    return [None if item == "full" else int(item) for item in names(text)]


def gigabytes(text: str) -> int:
    """Return a finite number of gigabytes above 0 in bytes."""
    number = float(text)
    if not 0 < number < math.inf:
        raise ValueError
    return int(number * 1e9)


def json_object(text: str) -> dict:
    """Return the value of a JSON object."""
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError
    return value


def device(name: str) -> torch.device:
    """Return a device that exists; ``auto`` is a GPU if there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        named = torch.device(name)
    except RuntimeError as error:
        raise ValueError from error
    counts = {"cpu": 1, "cuda": torch.cuda.device_count()}
    if (named.index or 0) >= counts.get(named.type, 0):
        raise ValueError
    return named


@dataclass(kw_only=True)
class Eval(CliCommand):
    """Options of ``alibi-fairseq eval``.

    Those named like a field of :class:`SweepConfig` are passed to it.
    """

    data: Path = option("folder written by fairseq-preprocess", type=folder_of, metavar="DATA")
    checkpoints: list[Path] = option(
        "checkpoint files to evaluate",
        flag="--path",
        required=True,
        nargs="+",
        type=shortest,
        metavar="CKPT",
    )
    lengths: list[int] = option(
        "evaluation lengths L in tokens, for example 512,1024,3072",
        required=True,
        type=lengths,
        metavar="L,…",
    )
    strides: list[int | None] = option(
        "strides S, the tokens scored per window, for example full,64; full: the evaluation length "
        "(non-overlapping windows); context per scored token: at least L - S + 1 tokens",
        "full",
        type=strides,
        metavar="S,…",
    )
    documents: str | None = option(
        "document boundaries: results hold the loss of each document, and --score-from counts within "
        "documents; " + "; ".join(f"{kind}: {how}" for kind, how in DOCUMENTS.items()) + " "
        "(default: empty-lines; a documents.json next to the data takes precedence)",
        None,
        flag="--per-document",
        nargs="?",
        const="empty-lines",
        choices=list(DOCUMENTS),
    )
    score_from: int | None = option(
        "first scored position in the split, or in each document: scores only tokens with at least N "
        "tokens before them, the same ones at every length and stride; no window reaches into the "
        "previous document",
        None,
        metavar="N",
    )
    score_to: int | None = option(
        "end of the scored positions in the split, or in each document, in tokens",
        None,
        metavar="M",
    )
    subsets: list[str] = option(
        "splits to evaluate, for example valid,test",
        "valid",
        flag="--subset",
        type=names,
        metavar="SPLIT,…",
    )
    out: Path = option("results file to write (JSON)", required=True, metavar="FILE")
    precision: str = option(
        "precision of weights and activations", "fp32", choices=list(PRECISIONS)
    )
    device: torch.device = option("device: auto, cpu, cuda, cuda:1, …", "auto", type=device)
    overrides: dict = option(
        'model options to override, for example \'{"attention_backend": "eager"}\'',
        "{}",
        flag="--model-overrides",
        type=json_object,
        metavar="JSON",
    )
    memory_budget: int | None = option(
        "memory budget of a forward pass in GB, which determines the batch size (default: 2 on a CPU, "
        "half the memory of a GPU)",
        None,
        flag="--memory-gb",
        type=gigabytes,
        metavar="GB",
    )
    effective_context: float | None = option(
        "tolerance of an additional table with the shortest window whose loss is at most PERCENT higher "
        "than that of the longest (default: 1)",
        None,
        nargs="?",
        const=1.0,
        metavar="PERCENT",
    )

    def __call__(self) -> None:
        """Evaluate the checkpoints, and print a table.

        Raises:
            UserInputError: an option cannot be used.
        """
        percent = self.effective_context
        if percent is not None and not 0 <= percent < math.inf:
            raise UserInputError(
                f"--effective-context {percent} is not a percentage. Pass a number of at least 0."
            )
        # Reading a device may never end.
        if self.out.exists() and not self.out.is_file():
            raise UserInputError(f"--out {self.out} is not a regular file. Pass a file path.")
        for checkpoint in self.checkpoints:
            require_file(checkpoint)
        records = run_sweep(fill_dataclass(SweepConfig, self))
        if "accuracy" in records[0]:
            print(f"{accuracy_table(records)}\nResults: {self.out}")
            return
        print(evaluation_table(records))
        if percent is not None:
            print(context_table(records, percent))
        _print_notes(records)
        print(f"L: evaluation length, S: stride, ctx: context per token. Results: {self.out}")


def _print_notes(records: list[dict]) -> None:
    """Print notes on lengths that the text does not reach and on chance perplexities."""
    longest_windows = [
        record["longest_window"]
        for record in records
        if record.get("longest_window", math.inf) < record["length"]
    ]
    if longest_windows:
        longest = max(longest_windows)
        print(f"Some lengths exceed the text: the longest window has {longest:,} tokens.")
    if any(is_chance(record["perplexity"], record.get("vocabulary")) for record in records):
        print(f"Some are near {markdown.CHANCE_NOTE}")


def short_name(path: str) -> str:
    """Return the folder and file name of a checkpoint."""
    return "/".join(Path(path).parts[-2:])


#: Column title, key of the result record, format.
_COLUMNS: list[tuple[str, str, Callable[[Any], str]]] = [
    ("checkpoint", "checkpoint", short_name),
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


def evaluation_table(records: list[dict]) -> str:
    """Return a Markdown table with the columns that the records have."""
    keys = {key for record in records for key in record}
    columns = [column for column in _COLUMNS if column[1] in keys]
    rows = []
    for record in records:
        row = []
        for _, key, format_value in columns:
            row.append(format_value(record[key]) if key in record else markdown.NOTHING)
        rows.append(row)
    return markdown.table([title for title, _, _ in columns], rows)


def context_table(records: list[dict], percent: float) -> str:
    """Return a table of the shortest window whose loss is close to that of the longest.

    There is a row for each checkpoint, split, and stride.
    """
    losses: dict[tuple, dict[int, float]] = defaultdict(dict)
    for record in records:
        stride = "full" if record["stride"] == record["length"] else str(record["stride"])
        group = (record["checkpoint"], record["subset"], stride)
        losses[group][record["length"]] = record["loss_bits"]
    rows = []
    for (checkpoint, subset, stride), loss in losses.items():
        limit = loss[max(loss)] * (1 + percent / 100)
        shortest_window = min(length for length in loss if loss[length] <= limit)
        rows.append([short_name(checkpoint), subset, stride, str(shortest_window)])
    return markdown.table(["checkpoint", "split", "S", f"context within {percent:g}%"], rows)
