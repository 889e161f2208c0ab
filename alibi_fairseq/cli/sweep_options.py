"""Command-line options of sweeps, shared by ``eval`` and ``position-loss``."""

from __future__ import annotations

import argparse
import json
import math
from contextlib import suppress
from pathlib import Path

import torch

from ..errors import BadInput
from ..evaluation.checkpoint import PRECISIONS
from ..evaluation.data import DOCUMENTS
from ..evaluation.sweep import Sweep
from .experiment_options import add_slurm_arguments, hand_over, shared_arguments, wants_slurm


def add_sweep_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that all sweeps share."""
    parser.add_argument(
        "data",
        metavar="DATA",
        type=lambda text: Path(text.split(":")[0]),
        help="folder written by fairseq-preprocess; if several are joined by :, the first",
    )
    parser.add_argument(
        "--path", nargs="+", required=True, type=shortest, metavar="CKPT", help="checkpoints"
    )
    parser.add_argument(
        "--lengths",
        required=True,
        type=lengths,
        help="window lengths L in tokens, for example 512,1024,3072",
    )
    parser.add_argument(
        "--stride",
        default="full",
        type=strides,
        help="tokens S that each window scores: full (non-overlapping, the default), a number, or "
        "several separated by commas; scored tokens have at least L - S tokens of context",
    )
    parser.add_argument(
        "--per-document",
        nargs="?",
        const="empty-lines",
        choices=list(DOCUMENTS),
        help="tell the documents of a split apart: eval also gives the loss of each, and --score-from "
        "counts in each; " + "; ".join(f"{kind}: {how}" for kind, how in DOCUMENTS.items()) + " "
        "(default: empty-lines; a documents.json beside the data comes first)",
    )
    parser.add_argument(
        "--score-from",
        type=int,
        metavar="N",
        help="score only tokens with at least N tokens before them in the split, or in their document: "
        "the same ones at every length and stride; no window reaches into the document before",
    )
    parser.add_argument(
        "--score-to",
        type=int,
        metavar="M",
        help="score only the first M tokens of the split, or of each document",
    )
    parser.add_argument("--subset", default="valid", type=names, help="for example valid,test")
    parser.add_argument("--out", required=True, metavar="FILE", type=Path, help="results (JSON)")
    parser.add_argument("--precision", choices=list(PRECISIONS), default="fp32")
    parser.add_argument("--device", default="auto", help="auto (the default), cpu, cuda, cuda:1, …")
    parser.add_argument(
        "--model-overrides",
        default="{}",
        type=json_object,
        metavar="JSON",
        help='options of the stored model to override, for example \'{"attention_backend": "eager"}\'',
    )
    parser.add_argument(
        "--dict",
        metavar="FILE",
        type=Path,
        help="training dictionary of the checkpoint, to compare with that of the data; only for "
        "checkpoints that do not store it and have no dict.txt next to them",
    )
    parser.add_argument(
        "--shard",
        type=shard,
        metavar="I/N",
        help="compute the I-th of N spans; join them with merge-shards",
    )
    parser.add_argument(
        "--memory-gb",
        type=gigabytes,
        metavar="GB",
        help="memory budget of a forward pass, which determines the batch size (default: 2 on a CPU, "
        "half of a GPU's)",
    )
    add_slurm_arguments(parser)
    parser.add_argument(
        "--shards", type=int, metavar="N", help="with --slurm: one job for each of N parts"
    )
    parser.add_argument("--dry-run", action="store_true", help="with --slurm: show the jobs")


def submit_shards(args: argparse.Namespace) -> int:
    """Hand a sweep to SLURM, a job for each shard, and one that merges their results."""
    from ..experiments.slurm import Stage

    sweep = sweep_of(args)  # finds wrong options now
    if args.shard:
        raise BadInput("--slurm makes the shards itself; give --shards N instead of --shard.")
    if args.shards is None or not 1 <= args.shards <= 10_000:
        raise BadInput("--slurm needs --shards N, the number of jobs, 10,000 at most.")
    folder = sweep.out.with_name(f"{sweep.out.stem}-shards")
    shared = shared_arguments(args, "--shards", "--out")
    parts = [(f"{i}/{args.shards}", str(folder / f"{i}.json")) for i in range(1, args.shards + 1)]
    jobs = [[*shared, "--shard", part, "--out", out] for part, out in parts]
    merge = ["merge-shards", *(out for _, out in parts), "--out", str(sweep.out)]
    gpus = int(args.device == "auto" or args.device.startswith("cuda"))
    if args.slurm_local and not torch.cuda.is_available():
        gpus = 0
    stages = [Stage("evaluating", jobs, gpus), Stage("merging", [merge])]
    return hand_over(args, stages, folder)


def sweep_of(args: argparse.Namespace, buckets: int | None = None) -> Sweep:
    """The sweep that the options describe.

    Raises:
        BadInput: options contradict each other, or this machine has no such device.
    """
    if not wants_slurm(args) and (args.shards is not None or args.dry_run):
        raise BadInput("--shards and --dry-run need --slurm; --shard I/N computes one part here.")
    if args.out.exists() and not args.out.is_file():  # reading a device may never end
        raise BadInput(f"--out is the file to write, and '{args.out}' is none.")
    return Sweep(
        data=args.data,
        checkpoints=args.path,
        subsets=args.subset,
        lengths=args.lengths,
        strides=args.stride,
        out=args.out,
        device=device(args.device),
        precision=args.precision,
        overrides=args.model_overrides,
        trained_with=args.dict,
        shard=args.shard,
        memory_budget=args.memory_gb,
        buckets=buckets,
        documents=args.per_document,
        score_from=args.score_from,
        score_to=args.score_to,
    )


# Types of options; argparse names the option in front of what they raise.


def shortest(text: str) -> Path:
    """A path relative to the working directory if it is inside, because results record it."""
    absolute, here = Path(text).resolve(), Path.cwd().resolve()
    return absolute.relative_to(here) if absolute.is_relative_to(here) else Path(text)


def names(text: str) -> list[str]:
    """``valid,test`` → ["valid", "test"], each once."""
    items = [item.strip() for item in text.split(",")]
    if "" in items:
        raise ValueError
    return list(dict.fromkeys(items))


def lengths(text: str) -> list[int]:
    """``512,1024`` → [512, 1024]."""
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
    """``{"name": value, …}``."""
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
    """A device of this machine.

    Raises:
        BadInput: there is none.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with suppress(RuntimeError):  # torch knows no device of that name
        found = torch.device(name)
        there = torch.cuda.device_count() if found.type == "cuda" else found.type == "cpu"
        if (found.index or 0) < there:
            return found
    raise BadInput(f"--device: this machine has no '{name}'; use auto, cpu, cuda or cuda:1.")
