"""Timing in alternation, memory peaks, and results files for all benchmarks."""

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
from alibi_fairseq.results.benchmark import Benchmark, BenchmarkFile, save_benchmarks
from alibi_fairseq.results.provenance import Provenance, collect_provenance

#: Values that identify a measurement. All others are measured.
CASE = (
    "variant",
    "phase",
    "model",
    "weights",
    "position_method",
    "train_length",
    "length",
    "stride",
    "batch",
    "prompt",
    "new_tokens",
    "passes",
    "attention_dropout",
    "layers",
    "heads",
    "head_size",
    "kept_share",
    "vocabulary",
    "threads",
    "version",
)
#: Values of a record that are neither.
HEAD = ("name", "baseline", "ratio")
RESULTS = Path(__file__).resolve().parents[1] / "results" / "benchmarks"
#: Folder of new results, in the current folder.
NEW_RESULTS = Path("runs/benchmarks")
#: Input of the models. Benchmarks need no data, so that they run from a bare checkout.
CORPUS = "random tokens"
PRECISION_NAMES = {torch.float32: "fp32", torch.bfloat16: "bf16"}


def on_gpu() -> bool:
    """Return True if the sizes for a GPU are measured."""
    return device().type == "cuda"


def device() -> torch.device:
    """Return the GPU if there is one, and the CPU otherwise."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def precision(device: torch.device) -> torch.dtype:
    """Return the usual training precision: bf16 on a GPU, fp32 on the CPU."""
    return torch.bfloat16 if device.type == "cuda" else torch.float32


def synchronize() -> None:
    """Wait for the GPU, if there is one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def time_in_alternation(
    functions: dict[str, Callable[[], object]], rounds: int, label: str = ""
) -> dict[str, list[float]]:
    """Time every function once per round, A B C A B C …, after one warm-up round.

    Other load on the machine then affects all functions, and ratios within a round are fair.

    Returns:
        Seconds per round, by function.
    """
    times: dict[str, list[float]] = {name: [] for name in functions}
    total = (rounds + 1) * len(functions)
    with tqdm(total=total, desc=label, leave=False, disable=not sys.stderr.isatty()) as bar:
        for round_number in range(rounds + 1):
            for name, function in functions.items():
                synchronize()
                start = time.perf_counter()
                function()
                synchronize()
                if round_number > 0:
                    times[name].append(time.perf_counter() - start)
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
    """Time functions in alternation and return one result record per function.

    The key ``ratio`` is the speed relative to the baseline: the median over rounds of the ratio
    within a round. Each record is also printed.

    Args:
        functions: the functions to time, by variant.
        rounds: number of timed calls of each function.
        label: task of the functions, for the names of the records.
        baseline: variant that the ratios refer to.
        tokens: number of tokens that one call processes; 0 omits the speed in tokens per second.
        case: further keys of every record.
    """
    case_values = [str(case[key]) for key in ("phase", "weights", "length") if key in case]
    description = ", ".join(case_values)
    times = time_in_alternation(functions, rounds, f"{label} ({description})")
    records = []
    for variant, seconds in times.items():
        ratios = [base / own for base, own in zip(times[baseline], seconds)]
        ratio = statistics.median(ratios)
        median = statistics.median(seconds)
        record = {
            "name": f"{label}, {variant}",
            "variant": variant,
            **case,
            "rounds": len(seconds),
            "baseline": baseline,
            "ratio": round(ratio, 4),
            "seconds": round(median, 6),
        }
        if tokens:
            record["tokens_per_second"] = round(tokens / median, 1)
        print(f"{record['name']} ({description}): {1000 * median:.1f} ms, {ratio:.2f} x {baseline}")
        records.append(record)
    return records


def make_record(values: dict) -> Benchmark:
    """Return the record of a benchmark's values by name; those in ``CASE`` identify it."""
    case = {key: value for key, value in values.items() if key in CASE}
    measured = {key: value for key, value in values.items() if key not in (*CASE, *HEAD)}
    head = {key: values[key] for key in HEAD}
    return Benchmark(case=case, measured=measured, **head)


def matmul_peak(device: torch.device, dtype: torch.dtype) -> float:
    """Return the FLOP/s of the fastest of several large matrix products."""
    size = 8192 if device.type == "cuda" else 2048
    a = torch.randn(size, size, device=device, dtype=dtype)
    b = torch.randn(size, size, device=device, dtype=dtype)
    times = time_in_alternation({"product": lambda: a @ b}, rounds=8)["product"]
    return 2 * size**3 / min(times)


def run_in_new_process(function: Callable, *arguments: object):
    """Return ``function(*arguments)``, computed in a fresh interpreter."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def run(
    doc: str,
    name: str,
    measure: Callable[[argparse.Namespace], Iterable[dict]],
    dtype: torch.dtype | None = None,
    **options: dict,
) -> None:
    """Parse the command line, measure, and write the results file after each record.

    If the process is stopped, or a later measurement fails, the earlier ones are therefore kept.

    Args:
        doc: description of the benchmark.
        name: name of its module.
        measure: function from the parsed arguments to result records.
        dtype: precision of the models. None: the usual one of the device.
        options: further options of this benchmark, with keyword arguments of ``add_argument``.
    """
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="use fewer lengths and rounds")
    parser.add_argument(
        "--rounds", type=int, help="number of timed rounds (default: 9, or 5 with --quick)"
    )
    parser.add_argument(
        "--out",
        type=Path,
        help=f"results file (default: runs/benchmarks/{name}-cpu.json or {name}-cuda.json)",
    )
    for option, keywords in options.items():
        parser.add_argument("--" + option.replace("_", "-"), **keywords)
    args = parser.parse_args()
    if not args.rounds:
        args.rounds = 5 if args.quick else 9
    torch.manual_seed(1)
    start = time.time()
    path = args.out or NEW_RESULTS / f"{name}-{device().type}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    provenance = collect_provenance(
        seconds=0,
        precision=PRECISION_NAMES[dtype or precision(device())],
        seed=1,
        command=["python", "-m", f"benchmarks.{name}", *arguments_without_folders()],
    )
    origin = Provenance(**provenance)
    results = BenchmarkFile(corpus=CORPUS, provenance=origin, records=[])
    try:
        for values in measure(args):
            results.records.append(make_record(values))
            results.provenance.seconds = round(time.time() - start, 3)
            save_benchmarks(results, path)
    except UserInputError as error:
        parser.error(str(error))
    print(f"written to {path}")


def arguments_without_folders() -> list[str]:
    """Return the command-line arguments, with absolute paths reduced to their names.

    The folders of this machine are of no use to readers of the results.
    """
    arguments = []
    for argument in sys.argv[1:]:
        path = Path(argument)
        arguments.append(path.name if path.is_absolute() else argument)
    return arguments
