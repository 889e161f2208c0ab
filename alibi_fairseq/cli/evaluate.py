"""``alibi-fairseq eval``: perplexity at any length and stride."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
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
from .options import CliCommand, filled, names, option

# Types of options; argparse names the option in front of what they raise.


def folder_of(text: str) -> Path:
    """The first of several folders that fairseq joins by ``:``."""
    return Path(text.split(":")[0])


def shortest(text: str) -> Path:
    """A path relative to the working directory if it is inside, because results record it."""
    absolute, here = Path(text).resolve(), Path.cwd().resolve()
    return absolute.relative_to(here) if absolute.is_relative_to(here) else Path(text)


def lengths(text: str) -> list[int]:
    return [int(item) for item in names(text)]


def strides(text: str) -> list[int | None]:
    """``full,64`` → [None, 64]."""
    return [None if item == "full" else int(item) for item in names(text)]


def gigabytes(text: str) -> int:
    """A finite number of gigabytes above 0, in bytes."""
    if not 0 < (number := float(text)) < math.inf:
        raise ValueError
    return int(number * 1e9)


def json_object(text: str) -> dict:
    if not isinstance(value := json.loads(text), dict):
        raise ValueError
    return value


def device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    with suppress(RuntimeError):  # torch knows no device of that name
        found = torch.device(name)
        there = {"cpu": 1, "cuda": torch.cuda.device_count()}
        if (found.index or 0) < there.get(found.type, 0):
            return found
    raise ValueError


@dataclass(kw_only=True)
class Eval(CliCommand):
    """Perplexity at any length and stride.

    The options with the name of a field of :class:`SweepConfig` are passed to it.
    """

    data: Path = option("folder written by fairseq-preprocess", type=folder_of, metavar="DATA")
    checkpoints: list[Path] = option(
        "checkpoints", flag="--path", required=True, nargs="+", type=shortest, metavar="CKPT"
    )
    lengths: list[int] = option(
        "window lengths L in tokens, for example 512,1024,3072", required=True, type=lengths
    )
    strides: list[int | None] = option(
        "tokens S that each window scores: full (non-overlapping), a number, or several separated by "
        "commas; scored tokens have at least L - S tokens of context",
        "full",
        flag="--stride",
        type=strides,
    )
    documents: str | None = option(
        "tell the documents of a split apart: eval also gives the loss of each, and --score-from "
        "counts in each; " + "; ".join(f"{kind}: {how}" for kind, how in DOCUMENTS.items()) + " "
        "(default: empty-lines; a documents.json beside the data comes first)",
        None,
        flag="--per-document",
        nargs="?",
        const="empty-lines",
        choices=list(DOCUMENTS),
    )
    score_from: int | None = option(
        "score only tokens with at least N tokens before them in the split, or in their document: "
        "the same ones at every length and stride; no window reaches into the document before",
        None,
        metavar="N",
    )
    score_to: int | None = option(
        "score only the first M tokens of the split, or of each document", None, metavar="M"
    )
    subsets: list[str] = option("for example valid,test", "valid", flag="--subset", type=names)
    out: Path = option("results (JSON)", required=True, metavar="FILE")
    precision: str = option("of weights and activations", "fp32", choices=list(PRECISIONS))
    device: torch.device = option("auto, cpu, cuda, cuda:1, …", "auto", type=device)
    overrides: dict = option(
        'options of the stored model to override, for example \'{"attention_backend": "eager"}\'',
        "{}",
        flag="--model-overrides",
        type=json_object,
        metavar="JSON",
    )
    memory_budget: int | None = option(
        "memory budget of a forward pass, which determines the batch size (default: 2 on a CPU, half "
        "of a GPU's)",
        None,
        flag="--memory-gb",
        type=gigabytes,
        metavar="GB",
    )
    effective_context: float | None = option(
        "also give the shortest window whose loss is at most PERCENT higher than the longest one's "
        "(default: 1)",
        None,
        nargs="?",
        const=1.0,
        metavar="PERCENT",
    )

    def __call__(self) -> None:
        percent = self.effective_context
        if percent is not None and not 0 <= percent < math.inf:
            raise UserInputError(f"--effective-context must be at least 0 percent, not {percent}.")
        if self.out.exists() and not self.out.is_file():  # reading a device may never end
            raise UserInputError(f"--out is the file to write, and '{self.out}' is none.")
        for checkpoint in self.checkpoints:
            require_file(checkpoint)
        cells = run_sweep(filled(SweepConfig, self))
        if "accuracy" in cells[0]:
            print(f"{accuracy_table(cells)}\nResults: {self.out}")
            return
        print(evaluation_table(cells))
        if percent is not None:
            print(context_table(cells, percent))
        past_end = [cell for cell in cells if cell.get("longest_window", math.inf) < cell["length"]]
        if past_end:
            longest = max(cell["longest_window"] for cell in past_end)
            print(f"The text ends before some lengths: the longest window has {longest:,} tokens.")
        if any(is_chance(cell["perplexity"], cell.get("vocabulary")) for cell in cells):
            print(f"Some are near {markdown.CHANCE_NOTE}")
        print(f"L: window length, S: stride, ctx: context per token. Results: {self.out}")


def short_name(path: str) -> str:
    """A checkpoint's folder and file name."""
    return "/".join(Path(path).parts[-2:])


#: Column title, key of the cell, format.
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


def evaluation_table(cells: list[dict]) -> str:
    columns = [column for column in _COLUMNS if any(column[1] in cell for cell in cells)]
    rows = [
        [write(cell[key]) if key in cell else markdown.NOTHING for _, key, write in columns]
        for cell in cells
    ]
    return markdown.table([title for title, _, _ in columns], rows)


def context_table(cells: list[dict], percent: float) -> str:
    """The shortest window whose loss is near the longest one's, by model, split and stride."""
    losses: dict[tuple, dict[int, float]] = defaultdict(dict)
    for cell in cells:
        stride = "full" if cell["stride"] == cell["length"] else str(cell["stride"])
        losses[cell["checkpoint"], cell["subset"], stride][cell["length"]] = cell["loss_bits"]
    rows = []
    for (checkpoint, subset, stride), loss in losses.items():
        most = loss[max(loss)] * (1 + percent / 100)
        near = min(length for length in loss if loss[length] <= most)
        rows.append([short_name(checkpoint), subset, stride, str(near)])
    return markdown.table(["checkpoint", "split", "S", f"context within {percent:g} %"], rows)
