"""Timing in turns, peaks, and results with provenance, for every benchmark."""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import torch
from tqdm import tqdm

from alibi_fairseq.errors import UserInputError
from alibi_fairseq.results.provenance import collect_provenance
from alibi_fairseq.results.schema import new_results_file, save_results_file

RESULTS = Path(__file__).resolve().parents[1] / "results" / "benchmarks"
#: What the models read: no benchmark needs data, so each runs from a bare checkout.
CORPUS = "random tokens"


def device() -> torch.device:
    """The GPU if there is one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def precision(where: torch.device) -> torch.dtype:
    """bf16 on a GPU, fp32 on the CPU: what each trains in."""
    return torch.bfloat16 if where.type == "cuda" else torch.float32


def synchronise() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def seconds_in_turns(
    functions: dict[str, Callable[[], object]], rounds: int, label: str = ""
) -> dict[str, list[float]]:
    """Seconds of every function in every round, A B C A B C …, after one call each to warm up.

    What else the machine does then falls on all of them, and ratios within a round are fair.
    """
    times: dict[str, list[float]] = {name: [] for name in functions}
    total = (rounds + 1) * len(functions)
    with tqdm(total=total, desc=label, leave=False, disable=not sys.stderr.isatty()) as bar:
        for turn in range(rounds + 1):
            for name, function in functions.items():
                synchronise()
                began = time.perf_counter()
                function()
                synchronise()
                if turn > 0:
                    times[name].append(time.perf_counter() - began)
                bar.update()
    return times


def compare(
    functions: dict[str, Callable[[], object]],
    rounds: int,
    label: str,
    baseline: str,
    tokens: int = 0,
    **case,
) -> list[dict]:
    """Time functions in turns; one cell for each, also printed.

    ``ratio`` is how many times as fast as the baseline it is: the median over rounds of the ratio within
    a round.

    Args:
        label: what the functions do, for the cells' names.
        tokens: number of tokens that one call takes, for the speed; 0 leaves it out.
        case: further keys of every cell.
    """
    shown = ", ".join(str(case[key]) for key in ("phase", "weights", "length") if key in case)
    times = seconds_in_turns(functions, rounds, f"{label} ({shown})")
    cells = []
    for name, seconds in times.items():
        median = statistics.median(seconds)
        ratio = statistics.median(slow / fast for slow, fast in zip(times[baseline], seconds))
        cell = {"name": f"{label}, {name}", "variant": name, **case, "rounds": len(seconds)}
        cell |= {"baseline": baseline, "ratio": round(ratio, 4), "seconds": round(median, 6)}
        if tokens:
            cell["tokens_per_second"] = round(tokens / median, 1)
        print(f"{cell['name']} ({shown}): {1000 * median:.1f} ms, {ratio:.2f} x {baseline}")
        cells.append(cell)
    return cells


def matmul_peak(where: torch.device, dtype: torch.dtype) -> float:
    """The machine's own matrix-product peak in FLOP/s: the best of several large products."""
    size = 8192 if where.type == "cuda" else 2048
    a, b = (torch.randn(size, size, device=where, dtype=dtype) for _ in range(2))
    times = seconds_in_turns({"product": lambda: a @ b}, rounds=8)["product"]
    return 2 * size**3 / min(times)


def in_new_process(function: Callable, *arguments: object):
    """What ``function(*arguments)`` returns in a fresh interpreter."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as fresh:
        return fresh.submit(function, *arguments).result()


def run(
    doc: str, name: str, measure: Callable[[argparse.Namespace], Iterable[dict]], **options: dict
) -> None:
    """Parse the command line, measure, and write the cells with their provenance.

    ``options`` are those that only this benchmark has, with what ``add_argument`` takes.
    """
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer lengths and rounds")
    parser.add_argument("--rounds", type=int, help="timed rounds (default: 9, or 5 with --quick)")
    parser.add_argument("--out", type=Path, help=f"default: results/benchmarks/{name}-….json")
    for option, values in options.items():
        parser.add_argument("--" + option.replace("_", "-"), **values)
    args = parser.parse_args()
    args.rounds = args.rounds or (5 if args.quick else 9)
    torch.manual_seed(1)
    began, where = time.time(), device()
    try:
        cells = list(measure(args))
    except UserInputError as error:
        parser.error(str(error))
    path = args.out or RESULTS / f"{name}-{where.type}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    # Where files lie on this machine is of no use to others.
    words = (Path(word).name if Path(word).is_absolute() else word for word in sys.argv[1:])
    provenance = collect_provenance(
        seconds=time.time() - began,
        precision={torch.float32: "fp32", torch.bfloat16: "bf16"}[precision(where)],
        seed=1,
        command=["python", "-m", f"benchmarks.{name}", *words],
    )
    save_results_file(new_results_file("benchmark", CORPUS, provenance, cells), path)
    print(f"written to {path}")
