"""Everything that only a GPU can prove, in order of worth: ``scripts/gpu_check.sh`` runs this.

Tests marked ``gpu`` come first, then the benchmarks. Each part is a process of its own with a time
limit, and a benchmark writes its JSON when it is done; a part that fails or runs out of time does not stop the
others. With ``--rehearse`` the same parts run on the CPU, at the smallest size.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from alibi_fairseq.files import atomic_write
from alibi_fairseq.results.provenance import collect_provenance
from alibi_fairseq.runs.child_process import kill_all

#: The most of the remaining time that a part may take, unless it is the last one.
SHARE = 0.5
#: A part is not started with less time than this.
LEAST_SECONDS = 20
#: Seconds to end after an interruption.
GRACE = 15


@dataclass(frozen=True)
class Part:
    """One process."""

    name: str
    proves: str
    options: str = "--quick"
    rehearsal: str = "--quick --rounds 1"  # its options on a CPU


PARTS = (
    Part("tests", "values, gradients, training, resuming and evaluation against references"),
    Part(
        "train",
        "training steps beside stock fairseq and the authors' mask",
        rehearsal="--rounds 1 --lengths 512 --no-memory",
    ),
    Part(
        "attention",
        "attention alone, beside the causal kernel without bias",
        rehearsal="--rounds 1 --lengths 512",
    ),
    Part(
        "methods",
        "the paper's Table 1",
        options="--quick --rounds 3",
        rehearsal="--rounds 1 --lengths 512 --methods sinusoidal alibi",
    ),
    Part("evaluate", "our evaluator beside fairseq-eval-lm"),
    Part("generate", "generation with cached keys"),
    Part(
        "output_layer",
        "training steps by criterion and option",
        rehearsal="--rounds 1 --no-memory",
    ),
)


@dataclass
class Outcome:
    """How a part ended: ``state`` is ``proven``, ``FAILED`` or ``left out``."""

    part: Part
    state: str
    detail: str
    seconds: float = 0.0

    def line(self) -> str:
        return f"{self.state:9s} {self.part.name:13s} {self.seconds:5.0f} s  {self.detail}"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/gpu_check.sh",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--minutes", type=float, default=9, help="time for all parts (default: 9)")
    parser.add_argument("--out", type=Path, default=Path("runs/gpu-check"), metavar="DIR")
    parser.add_argument("--parts", nargs="+", choices=[part.name for part in PARTS], metavar="PART",
                        help="only these, such as the ones that an earlier call left out")  # fmt: skip
    parser.add_argument("--tests", metavar="EXPRESSION",
                        help="names of the tests to run, as in pytest -k (default: all)")  # fmt: skip
    parser.add_argument("--rehearse", action="store_true", help="run on the CPU")
    args = parser.parse_args()
    if not args.rehearse and not torch.cuda.is_available():
        parser.error("PyTorch sees no GPU here; --rehearse runs the same parts on the CPU.")
    args.out.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + 60 * args.minutes
    outcomes: list[Outcome] = []
    chosen = [part for part in PARTS if not args.parts or part.name in args.parts]
    for part in chosen:
        print(f"== {part.name}: {part.proves}", flush=True)
        share = 1.0 if part is chosen[-1] else SHARE
        outcomes.append(run(part, args, share * (deadline - time.monotonic())))
        with atomic_write(args.out / "summary.txt") as file:
            file.write(summary(outcomes) + "\n")
    print(summary(outcomes))
    return int(any(outcome.state == "FAILED" for outcome in outcomes))


def run(part: Part, args: argparse.Namespace, limit: float) -> Outcome:
    """Run one part for at most ``limit`` seconds."""
    if limit < LEAST_SECONDS:
        return Outcome(part, "left out", "no time was left")
    # Beside the folder: what comes back from a borrowed machine is few files.
    log = args.out.with_name(f"{args.out.name}.log")
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "COLUMNS": "200"}
    if args.rehearse:
        environment |= {"CUDA_VISIBLE_DEVICES": "", "ALIBI_GPU_REHEARSAL": "1"}
    began = time.monotonic()
    with log.open("a+", encoding="utf-8") as stream:
        print(f"== {part.name}", file=stream, flush=True)
        words, start = command(part, args, limit), stream.tell()
        process = subprocess.Popen(words, env=environment, stdout=stream, stderr=subprocess.STDOUT)
        try:
            code: int | None = process.wait(limit)
        except subprocess.TimeoutExpired:
            code = None
            if part.name == "tests":  # interrupted, pytest reports the tests that it has run
                process.send_signal(signal.SIGINT)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(GRACE)
        finally:
            kill_all(process.pid)  # with what it has started, if it still runs
            process.wait()
        stream.seek(start)
        lines = stream.read().rstrip().splitlines() or ["no message"]
    if part.name == "tests":
        state, detail = outcome_of_tests(lines, code)
    elif code is None:
        state, detail = "left out", "it did not end in time"
    elif code != 0:
        state, detail = "FAILED", lines[-1].strip()[:200]
    else:
        state, detail = "proven", f"{part.name}.json"
    if state == "FAILED":
        print("\n".join(lines[-20:]))
    return Outcome(part, state, detail, time.monotonic() - began)


def command(part: Part, args: argparse.Namespace, limit: float) -> list[str]:
    """The process of a part, which is killed after ``limit`` seconds."""
    if part.name == "tests":
        # pytest sums up when it ends: let it stop by itself, between two tests.
        options = "-q -rfE --no-header -m gpu -p no:cacheprovider tests/gpu "
        options += f"tests/models/test_every_method.py --session-timeout={0.8 * limit:.0f}"
        words = options.split()
        if args.tests:
            words += ["-k", args.tests]
        return [sys.executable, "-m", "pytest", *words]
    options = (part.rehearsal if args.rehearse else part.options).split()
    options += ["--out", str(args.out / f"{part.name}.json")]
    return [sys.executable, "-m", f"benchmarks.{part.name}", *options]


def outcome_of_tests(lines: list[str], code: int | None) -> tuple[str, str]:
    """State and detail from what pytest printed and its exit code, None if it was interrupted."""
    counts = re.search(r"(?:\d+ [a-z]+, )*\d+ [a-z]+(?= in [\d.]+s)", lines[-1])
    failures = [line[:200] for line in lines if line.startswith(("FAILED ", "ERROR "))]
    if failures or not counts or " passed" not in counts[0]:
        return "FAILED", "; ".join([counts[0] if counts else lines[-1][:200], *failures[:5]])
    rest = "" if code == 0 else "; the others were not reached in time"
    return "proven", counts[0] + rest


def summary(outcomes: list[Outcome]) -> str:
    """One screen: what was proven, what failed and with which line, what was left out."""
    source = collect_provenance(seconds=0, command=["scripts/gpu_check.sh"])
    machine = source["hardware"]["gpu"] or f"{source['hardware']['cpu']}: A REHEARSAL WITHOUT A GPU"
    versions = f"torch {source['versions']['torch']}, Python {source['versions']['python']}"
    commit = (source["git_commit"] or "unknown")[:10]
    lines = [machine, f"commit {commit}, {versions}, {source['date'][:10]}"]
    lines += [outcome.line() for outcome in outcomes]
    ran = {outcome.part.name for outcome in outcomes}
    missing = (part for part in PARTS if part.name not in ran)
    lines += [
        f"left out  {part.name:13s}          not asked for, or not reached" for part in missing
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
