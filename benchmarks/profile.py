"""Where the time of a training step goes: ``python -m benchmarks.profile``.

Writes ``benchmarks/profiles/VARIANT-LENGTH.txt``: the operations that cost most, from
``torch.profiler``. On the CPU with one thread, so that waiting for the other does not count; what
certified skipping computes in threads of its own is in the lines ``_Banded`` and ``_BandedBackward``.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from . import common
from .train import stepper

FOLDER = Path(__file__).resolve().parent / "profiles"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lengths", type=int, nargs="+", default=[512, 3072])
    parser.add_argument("--variants", nargs="+", default=["stock", "alibi"])
    args = parser.parse_args()
    where = common.device()
    activities = [ProfilerActivity.CPU]
    if where.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    else:
        torch.set_num_threads(1)
    FOLDER.mkdir(exist_ok=True)
    for length in args.lengths:
        for variant in args.variants:
            _, step = stepper(variant, length, 0.0)
            step()
            with profile(activities=activities) as profiled:
                step()
            order = f"self_{where.type}_time_total"
            table = profiled.key_averages().table(
                sort_by=order, row_limit=16, max_name_column_width=48
            )
            path = FOLDER / f"{where.type}-{variant}-{length}.txt"
            path.write_text(compact(table), encoding="utf-8")
            print(f"written to {path}")


def compact(table: str) -> str:
    """The table without rules, and without blanks at the ends of lines."""
    lines = (line.rstrip() for line in table.splitlines())
    return "\n".join(line for line in lines if line.strip("- ")) + "\n"


if __name__ == "__main__":
    main()
