"""Tests and benchmarks that require a GPU: ``scripts/gpu_check.sh`` runs this module.

The parts run in order of importance: tests marked ``gpu`` first, then the benchmarks. Each part is
a separate process with a time limit, and a benchmark writes its JSON after each measurement. If a
part fails or exceeds its limit, the others still run. With ``--rehearse``, the same parts run on
the CPU at the smallest size.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from alibi_fairseq.experiment.stoppable_command import kill_all
from alibi_fairseq.files import atomic_write
from alibi_fairseq.machine import cores
from alibi_fairseq.results.provenance import collect_provenance

#: Least remaining time in seconds to start a part.
MIN_SECONDS = 20
#: Largest number of processes of the tests, which share the GPU. Most of their time is compilation.
TEST_PROCESSES = 10
#: Seconds between the interruption and the end of the tests.
GRACE_SECONDS = 15


@dataclass(frozen=True)
class Part:
    """Tests or benchmark that run in one process.

    Attributes:
        name: module of the benchmark, or ``tests``.
        seconds: time that the part needs on an H100 or H200, including start and compilation.
        description: subject, which is printed when the part starts.
        options: options on a GPU.
        rehearsal: options on the CPU.
    """

    name: str
    seconds: int
    description: str
    options: str = "--quick"
    rehearsal: str = "--quick --rounds 1"


#: Together, they need less than nine minutes.
PARTS = (
    Part("tests", 165, "values, gradients, training, resuming, and evaluation against references"),
    Part(
        "train",
        90,
        "training steps compared with stock fairseq and the authors' mask",
        options="--quick --rounds 3 --lengths 512 3072",
        rehearsal="--rounds 1 --lengths 512 --no-memory",
    ),
    Part(
        "attention",
        75,
        "attention alone, compared with the causal kernel without bias",
        options="--quick --rounds 3 --lengths 512 3072 32768",
        rehearsal="--rounds 1 --lengths 512",
    ),
    Part(
        "methods",
        75,
        "the paper's Table 1",
        options="--quick --rounds 3 --lengths 512 3072 --methods sinusoidal rotary t5 alibi",
        rehearsal="--rounds 1 --lengths 512 --methods sinusoidal alibi",
    ),
    Part(
        "evaluate",
        40,
        "our evaluator compared with fairseq-eval-lm",
        options="--quick --rounds 3",
    ),
    Part("generate", 45, "generation with cached keys", options="--quick --rounds 2"),
    Part(
        "output_layer",
        45,
        "training steps by criterion and option",
        options="--quick --rounds 3",
        rehearsal="--rounds 1 --no-memory",
    ),
)


@dataclass
class Outcome:
    """Outcome of a part.

    Attributes:
        part: the part.
        state: ``passed``, ``FAILED``, ``partial``, or ``skipped``.
        detail: counts of tests, results file, or reason.
        seconds: duration.
    """

    part: Part
    state: str
    detail: str
    seconds: float = 0.0

    def line(self) -> str:
        """Return the line of the summary."""
        return f"{self.state:9s} {self.part.name:13s} {self.seconds:5.0f} s  {self.detail}"


def parse_arguments() -> argparse.Namespace:
    """Parse the command line. Without a GPU, ``--rehearse`` is required."""
    parser = argparse.ArgumentParser(
        prog="scripts/gpu_check.sh",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--minutes", type=float, default=9, help="time limit of all parts (default: 9)"
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("runs/gpu-check"),
        metavar="FOLDER",
        help="output folder (default: runs/gpu-check)",
    )
    parser.add_argument(
        "--parts",
        nargs="+",
        choices=[part.name for part in PARTS],
        metavar="PART",
        help="parts to run, such as those skipped by an earlier call (default: all)",
    )
    parser.add_argument(
        "--tests",
        metavar="EXPRESSION",
        help="names of the tests to run, as in pytest -k (default: all)",
    )
    parser.add_argument("--rehearse", action="store_true", help="run on the CPU")
    args = parser.parse_args()
    if not args.rehearse and not torch.cuda.is_available():
        parser.error("PyTorch finds no GPU. Pass --rehearse to run the same parts on the CPU.")
    return args


def main() -> int:
    """Run the parts and return 1 if one failed, and 0 otherwise."""
    args = parse_arguments()
    args.out.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + 60 * args.minutes
    outcomes: list[Outcome] = []
    selected = [part for part in PARTS if not args.parts or part.name in args.parts]
    for part in selected:
        print(f"== {part.name}: {part.description}", flush=True)
        later = selected[selected.index(part) + 1 :]
        limit = time_limit(part, later, deadline - time.monotonic())
        outcomes.append(run_part(part, args, limit))
        with atomic_write(args.out / "summary.txt") as stream:
            stream.write(summary(outcomes) + "\n")
    print(summary(outcomes))
    return int(any(outcome.state == "FAILED" for outcome in outcomes))


def time_limit(part: Part, later: Sequence[Part], remaining: float) -> float:
    """Return the time limit of a part in seconds: the time that the later parts do not need.

    If the remaining time is too short for all, the earlier and more important ones have theirs.

    Args:
        part: the part.
        later: parts after it.
        remaining: remaining time of all in seconds.
    """
    spare = remaining - sum(other.seconds for other in later)
    return min(remaining, max(part.seconds, spare))


def run_part(part: Part, args: argparse.Namespace, limit: float) -> Outcome:
    """Run one part for at most ``limit`` seconds."""
    if limit < MIN_SECONDS:
        return Outcome(part, "skipped", "no time was left")
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "COLUMNS": "200"}
    if args.rehearse:
        environment["CUDA_VISIBLE_DEVICES"] = ""
        environment["ALIBI_GPU_REHEARSAL"] = "1"
    # Next to the output directory, which holds few files so that it is easy to copy.
    log = args.out.with_name(f"{args.out.name}.log")
    results = args.out / f"{part.name}.json"
    results.unlink(missing_ok=True)  # of an earlier call
    start = time.monotonic()
    with log.open("a+", encoding="utf-8") as stream:
        print(f"== {part.name}", file=stream, flush=True)
        log_start = stream.tell()
        process = subprocess.Popen(
            command(part, args, limit), env=environment, stdout=stream, stderr=subprocess.STDOUT
        )
        code = wait(process, limit, interrupt=part.name == "tests")
        stream.seek(log_start)
        lines = stream.read().rstrip().splitlines() or ["no message"]
    if part.name == "tests":
        state, detail = outcome_of_tests(lines, code)
    else:
        state, detail = outcome_of_benchmark(results, lines, code)
    if state == "FAILED":
        print("\n".join(lines[-20:]))
    return Outcome(part, state, detail, time.monotonic() - start)


def wait(process: subprocess.Popen, limit: float, interrupt: bool) -> int | None:
    """Return the exit code of a process, or None if it was stopped after ``limit`` seconds.

    Args:
        process: leader of the processes to stop.
        limit: time limit in seconds.
        interrupt: True to send SIGINT first. pytest then reports the tests that it has run.
    """
    try:
        return process.wait(limit)
    except subprocess.TimeoutExpired:
        if interrupt:
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(GRACE_SECONDS)
        return None
    finally:
        kill_all(process.pid)
        process.wait()


def command(part: Part, args: argparse.Namespace, limit: float) -> list[str]:
    """Return the command of a part that is killed after ``limit`` seconds."""
    if part.name == "tests":
        # pytest reports when it ends. This limit stops it between two tests, before the kill.
        options = "-q -rfE --no-header -m gpu -p no:cacheprovider tests/gpu "
        options += f"tests/models/test_every_method.py --session-timeout={0.8 * limit:.0f}"
        words = options.split()
        if importlib.util.find_spec("xdist"):
            words += ["-n", str(min(TEST_PROCESSES, cores()))]
        if args.tests:
            words += ["-k", args.tests]
        return [sys.executable, "-m", "pytest", *words]
    options = part.rehearsal if args.rehearse else part.options
    out = args.out / f"{part.name}.json"
    return [sys.executable, "-m", f"benchmarks.{part.name}", *options.split(), "--out", str(out)]


def outcome_of_tests(lines: list[str], code: int | None) -> tuple[str, str]:
    """Return the state and detail of the tests.

    Args:
        lines: output of pytest.
        code: its exit code, or None if it was stopped.
    """
    match = re.search(r"(?:\d+ [a-z]+, )*\d+ [a-z]+(?= in [\d.]+s)", lines[-1])
    counts = match[0] if match else lines[-1][:200]
    failures = [line[:200] for line in lines if line.startswith(("FAILED ", "ERROR "))]
    if failures or not match or " passed" not in counts:
        return "FAILED", "; ".join([counts, *failures[:5]])
    if code != 0:
        counts += "; the others were not reached in time"
    return "passed", counts


def outcome_of_benchmark(results: Path, lines: list[str], code: int | None) -> tuple[str, str]:
    """Return the state and detail of a benchmark.

    Args:
        results: its results file, which exists if it has measured anything.
        lines: its output.
        code: its exit code, or None if it was stopped.
    """
    if code == 0:
        return "passed", results.name
    measured = ""
    if results.is_file():
        measured = f"; {results.name} has what it measured before"
    if code is not None:
        return "FAILED", lines[-1].strip()[:200] + measured
    return ("partial" if measured else "skipped"), "it did not end in time" + measured


def summary(outcomes: list[Outcome]) -> str:
    """Return the machine, the versions, and one line per part."""
    provenance = collect_provenance(seconds=0, command=["scripts/gpu_check.sh"])
    hardware = provenance["hardware"]
    machine = hardware["gpu"] or f"{hardware['cpu']}: A REHEARSAL WITHOUT A GPU"
    versions = provenance["versions"]
    commit = (provenance["git_commit"] or "unknown")[:10]
    date = provenance["date"][:10]
    lines = [
        machine,
        f"commit {commit}, torch {versions['torch']}, Python {versions['python']}, {date}",
    ]
    lines += [outcome.line() for outcome in outcomes]
    completed = {outcome.part.name for outcome in outcomes}
    for part in PARTS:
        if part.name not in completed:
            lines.append(f"{'skipped':9s} {part.name:13s}          not selected, or not reached")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
