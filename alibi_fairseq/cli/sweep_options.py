"""Command-line options of sweeps, shared by ``eval`` and ``position-loss``."""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path

import torch

from ..errors import BadInput
from ..evaluation.checkpoint import PRECISIONS
from ..evaluation.sweep import Sweep
from .experiment_options import add_slurm_arguments, hand_over, shared_arguments, wants_slurm

#: Largest number of jobs of one evaluation; clusters allow fewer.
MOST_SHARDS = 10_000


def add_sweep_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that all sweeps share."""
    parser.add_argument(
        "data",
        metavar="DATA",
        help="folder written by fairseq-preprocess; if several are joined by :, the first",
    )
    parser.add_argument(
        "--path", nargs="+", required=True, metavar="CKPT", help="one or more checkpoints"
    )
    parser.add_argument(
        "--lengths", required=True, help="window lengths L in tokens, for example 512,1024,3072"
    )
    parser.add_argument(
        "--stride",
        default="full",
        help="tokens S that each window scores: full (non-overlapping, the default), a number, or "
        "several separated by commas; scored tokens have at least L - S tokens of context",
    )
    parser.add_argument("--subset", default="valid", help="splits, for example valid,test")
    parser.add_argument("--out", required=True, metavar="FILE", help="results (JSON) to write")
    parser.add_argument("--precision", choices=list(PRECISIONS), default="fp32")
    parser.add_argument("--device", default="auto", help="auto (the default), cpu, cuda, cuda:1, …")
    parser.add_argument(
        "--model-overrides",
        default="{}",
        metavar="JSON",
        help='options of the stored model to override, for example \'{"attention_backend": "eager"}\'',
    )
    parser.add_argument(
        "--dict",
        metavar="FILE",
        help="training dictionary of the checkpoint, to compare with that of the data; only for "
        "checkpoints that do not store it and have no dict.txt next to them",
    )
    parser.add_argument(
        "--shard", metavar="I/N", help="compute the I-th of N spans; join them with merge-shards"
    )
    parser.add_argument(
        "--memory-gb",
        type=float,
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
    if args.shards is None or not 1 <= args.shards <= MOST_SHARDS:
        raise BadInput(f"--slurm needs --shards N, the number of jobs, 1 to {MOST_SHARDS:,}.")
    folder = sweep.out.with_name(f"{sweep.out.stem}-shards")
    words = shared_arguments(args, "--shards", "--out")
    parts = [(f"{i}/{args.shards}", str(folder / f"{i}.json")) for i in range(1, args.shards + 1)]
    jobs = [[*words, "--shard", shard, "--out", out] for shard, out in parts]
    merge = ["merge-shards", *(out for _, out in parts), "--out", str(sweep.out)]
    gpus = int(args.device == "auto" or args.device.startswith("cuda"))
    if args.slurm_local and not torch.cuda.is_available():
        gpus = 0
    stages = [Stage("evaluating", jobs, gpus), Stage("merging", [merge])]
    return hand_over(args, stages, folder)


def sweep_of(args: argparse.Namespace, buckets: int | None = None) -> Sweep:
    """The sweep that the options describe.

    Raises:
        BadInput: if an option has an invalid value.
    """
    if not wants_slurm(args) and (args.shards is not None or args.dry_run):
        raise BadInput("--shards and --dry-run need --slurm; --shard I/N computes one part here.")
    out = Path(args.out)
    if out.exists() and not out.is_file():  # reading a device may never end
        raise BadInput(f"--out is the file to write, and '{out}' is none.")
    if args.memory_gb is not None and not 0 < args.memory_gb < math.inf:
        raise BadInput(f"--memory-gb must be above 0 and finite, not {args.memory_gb}.")
    return Sweep(
        data=Path(args.data.split(":")[0]),
        checkpoints=[_shortest(Path(path)) for path in args.path],
        subsets=_names("--subset", args.subset),
        lengths=[_number("--lengths", item) for item in _names("--lengths", args.lengths)],
        strides=[
            None if item == "full" else _number("--stride", item)
            for item in _names("--stride", args.stride)
        ],
        out=out,
        device=_device(args.device),
        precision=args.precision,
        overrides=_overrides(args.model_overrides),
        trained_with=Path(args.dict) if args.dict else None,
        shard=_shard(args.shard) if args.shard else None,
        memory_budget=None if args.memory_gb is None else int(args.memory_gb * 1e9),
        buckets=buckets,
    )


def _shortest(path: Path) -> Path:
    """Relative to the working directory if inside it, because results record the path."""
    absolute, here = path.resolve(), Path.cwd().resolve()
    return absolute.relative_to(here) if absolute.is_relative_to(here) else path


def _names(option: str, text: str) -> list[str]:
    items = [item.strip() for item in text.split(",")]
    if "" in items:
        raise BadInput(f"{option} takes one or more values separated by commas, not '{text}'.")
    return list(dict.fromkeys(items))


def _number(option: str, item: str) -> int:
    try:
        return int(item)
    except ValueError:
        raise BadInput(f"{option} takes whole numbers, not '{item}'.") from None


def _overrides(text: str) -> dict:
    try:
        overrides = json.loads(text)
    except (ValueError, RecursionError):
        overrides = None
    if not isinstance(overrides, dict):
        raise BadInput(
            f'--model-overrides is a JSON object such as \'{{"attention_backend": "eager"}}\', '
            f"with double quotes, not {text}"
        )
    return overrides


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise BadInput(f"There is no device '{name}'; use auto, cpu, cuda or cuda:1.") from None
    if device.type not in ("cpu", "cuda"):
        raise BadInput(f"Evaluation runs on cpu or cuda, not on '{name}'.")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise BadInput(f"This machine has no device '{name}'; use --device cpu.")
    return device


def _shard(text: str) -> tuple[int, int]:
    """``2/3`` → (2, 3), the second of three."""
    index, _, count = text.partition("/")
    if not (index.isdecimal() and count.isdecimal() and 1 <= int(index) <= int(count)):
        raise BadInput(f"--shard is i/n with 1 ≤ i ≤ n, for example 2/3, not '{text}'.")
    return int(index), int(count)
