"""``alibi-fairseq eval`` and ``merge-shards``: perplexity at any length and stride."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from ..data.probes import SETTINGS
from ..errors import BadInput
from ..evaluation.checkpoint import PRECISIONS
from ..evaluation.context import distances, effective_context
from ..evaluation.data import DOCUMENTS
from ..evaluation.measure import bucket_edges
from ..evaluation.merge import merge_shards
from ..evaluation.probe import run_probe
from ..evaluation.sweep import Sweep, run_sweep
from ..reporting import markdown
from ..reporting.markdown import CHANCE_NOTE
from ..reporting.probes import accuracy_table
from ..results.points import is_chance
from ..results.schema import load_document, save_document
from .options import Verb, aligned, filled, names, option

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


def shard(text: str) -> tuple[int, int]:
    """``2/3`` → (2, 3), the second of three."""
    index, count = map(int, text.split("/"))
    if not 1 <= index <= count:
        raise ValueError
    return index, count


def device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with suppress(RuntimeError):  # torch knows no device of that name
        found = torch.device(name)
        there = torch.cuda.device_count() if found.type == "cuda" else found.type == "cpu"
        if (found.index or 0) < there:
            return found
    raise BadInput(f"--device: this machine has no '{name}'; use auto, cpu, cuda or cuda:1.")


@dataclass(kw_only=True)
class SweepOptions(Verb):
    """The options of a sweep; those with the name of a field of :class:`Sweep` are passed to it."""

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
    device: str = option("auto, cpu, cuda, cuda:1, …", "auto")
    overrides: dict = option(
        'options of the stored model to override, for example \'{"attention_backend": "eager"}\'',
        "{}",
        flag="--model-overrides",
        type=json_object,
        metavar="JSON",
    )
    trained_with: Path | None = option(
        "training dictionary of the checkpoint, to compare with that of the data; only for "
        "checkpoints that do not store it and have no dict.txt next to them",
        None,
        flag="--dict",
        metavar="FILE",
    )
    shard: tuple[int, int] | None = option(
        "compute the I-th of N spans; join them with merge-shards", None, type=shard, metavar="I/N"
    )
    memory_budget: int | None = option(
        "memory budget of a forward pass, which determines the batch size (default: 2 on a CPU, half "
        "of a GPU's)",
        None,
        flag="--memory-gb",
        type=gigabytes,
        metavar="GB",
    )

    def __call__(self) -> int:
        sweep: Sweep = replace(filled(Sweep, self), device=device(self.device))
        if sweep.buckets is not None:
            bucket_edges(1, sweep.buckets)  # raises BadInput before anything is loaded
        if self.out.exists() and not self.out.is_file():  # reading a device may never end
            raise BadInput(f"--out is the file to write, and '{self.out}' is none.")
        return self.measure(sweep)

    def measure(self, sweep: Sweep) -> int:
        raise NotImplementedError


@dataclass(kw_only=True)
class Eval(SweepOptions):
    """Perplexity at any length and stride."""

    effective_context: float | None = option(
        "also give the shortest window whose loss is at most PERCENT higher than the longest one's "
        "(default: 1), and attention by distance",
        None,
        nargs="?",
        const=1.0,
        metavar="PERCENT",
    )

    def measure(self, sweep: Sweep) -> int:
        percent = self.effective_context
        if (sweep.data / SETTINGS).is_file():
            print(f"{accuracy_table(run_probe(sweep))}\nResults: {self.out}")
            return 0
        if percent is not None:
            if not 0 <= percent < math.inf:
                raise BadInput(f"--effective-context must be at least 0 percent, not {percent}.")
            if sweep.shard:
                raise BadInput("--effective-context is measured in one piece; remove --shard.")
            sweep = replace(sweep, attention=True)
        cells = run_sweep(sweep)
        print(evaluation_table(cells))
        if percent is not None:
            print(f"\n{context_table(cells, percent)}\n")
            print(f"The shortest window within {percent:g} % of the")
            print(
                "longest one's loss, and in that one attention by distance in tokens, in percent."
            )
        if any(is_chance(cell["perplexity"], cell.get("vocabulary")) for cell in cells):
            print(f"\nSome are near {CHANCE_NOTE}")
        print(f"\nL: window length, S: stride, ctx: context per token. Results: {self.out}")
        return 0


@dataclass
class MergeShards(Verb):
    """The results of all shards of a sweep as those of one."""

    shards: list[Path] = option("results of all shards", metavar="FILE")
    out: Path = option("file to write", required=True, metavar="FILE")

    def __call__(self) -> None:
        document = merge_shards([load_document(path) for path in self.shards])
        save_document(document, self.out)
        if document["kind"] == "evaluation":
            print(evaluation_table(document["cells"]))
        print(f"Merged {len(self.shards)} files. Results: {self.out}")


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


def evaluation_table(cells: list[dict]) -> str:
    columns = [column for column in _COLUMNS if any(column[1] in cell for cell in cells)]
    rows = [[title for title, _, _ in columns]]
    for cell in cells:
        values = [(cell.get(key), write) for _, key, write in columns]
        rows.append(["–" if value is None else write(value) for value, write in values])
    return ruled(rows)


def context_table(cells: list[dict], percent: float) -> str:
    """Effective context and, in the longest windows, attention by distance: a line per model and stride."""
    groups: dict[tuple, list[dict]] = defaultdict(list)
    for cell in cells:
        stride = "full" if cell["stride"] == cell["length"] else cell["stride"]
        groups[cell["checkpoint"], cell["subset"], stride].append(cell)
    most = max(len(cell["attention_mass"]) for cell in cells)
    rows = [["checkpoint", "split", "S", "effective", "of", *distances(most)]]
    for (checkpoint, subset, stride), some in groups.items():
        longest = max(some, key=lambda cell: cell["length"])
        mass = [f"{100 * share:.1f}" for share in longest["attention_mass"]]
        lengths = (effective_context(some, percent), longest["length"])
        name = "/".join(Path(checkpoint).parts[-2:])
        row = [name, subset, str(stride), *map(str, lengths), *mass]
        rows.append(row + ["–"] * (len(rows[0]) - len(row)))
    return ruled(rows)


def ruled(rows: list[list[str]]) -> str:
    head, *lines = aligned(rows, str.rjust)
    return "\n".join([head, "-" * len(head), *lines])
