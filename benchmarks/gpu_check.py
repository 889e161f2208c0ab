"""Everything that only a GPU can prove, in order of worth: ``scripts/gpu_check.sh`` runs this.

Tests marked ``gpu`` come first, then the benchmarks. Each part is a process of its own with a time
limit and writes its JSON when it is done; a part that fails or runs out of time does not stop the
others. The models of ``configs/study/gpu.yaml`` are a call of their own, with ``--corpus``. With
``--rehearse`` the same parts run on the CPU, at the smallest size.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree
from zipfile import ZIP_DEFLATED, ZipFile

import torch

from alibi_fairseq.errors import BadInput
from alibi_fairseq.experiments.command import kill_all
from alibi_fairseq.files import atomic_write
from alibi_fairseq.results.provenance import collect_provenance
from alibi_fairseq.results.schema import new_document, save_document

#: The most of the remaining time that a part may take, unless it is the last one.
SHARE = 0.5
#: A part is not started with less time than this.
LEAST_SECONDS = 20
#: Seconds to end after an interruption.
GRACE = 15


@dataclass(frozen=True)
class Part:
    """One process.

    Attributes:
        name: of its files, too.
        proves: what its success shows.
        options: of the benchmark.
        rehearsal: its options on a CPU.
    """

    name: str
    proves: str
    options: str = "--quick"
    rehearsal: str = "--quick --rounds 1"


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
        options="--quick",
        rehearsal="--quick --rounds 1 --lengths 512",
    ),
    Part(
        "methods",
        "the paper's Table 1",
        options="--quick --rounds 3",
        rehearsal="--rounds 1 --lengths 512 --methods sinusoidal alibi",
    ),
    Part("evaluate", "our evaluator beside fairseq-eval-lm", rehearsal="--quick"),
    Part("generate", "generation with cached keys"),
    Part(
        "output_layer",
        "training steps by criterion and option",
        rehearsal="--rounds 1 --no-memory --softmax plain",
    ),
    Part(
        "study",
        "the paper's claims with the paper's model",
        options="configs/study/gpu.yaml",
        rehearsal="configs/study/cpu.yaml --cells wikipedia-alibi-64-seed1",
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
    parser.add_argument("--corpus", metavar="NAME=PATH",
                        help="text of the study, such as wikipedia=wikitext-103-v1.zip; with it `study` "
                        "is the only part, unless --parts names others")  # fmt: skip
    parser.add_argument("--weights", type=Path, metavar="RUN", default=Path("runs/demo"),
                        help="folder of a demonstration's run, whose trained weights `attention` "
                        "is measured on too (default: runs/demo, if it is there)")  # fmt: skip
    parser.add_argument("--rehearse", action="store_true", help="run on the CPU")
    args = parser.parse_args()
    if not args.rehearse and not torch.cuda.is_available():
        raise BadInput("PyTorch sees no GPU here; --rehearse runs the same parts on the CPU.")
    wanted = args.parts or [p.name for p in PARTS if (p.name == "study") == bool(args.corpus)]
    if "study" in wanted and not args.corpus:
        raise BadInput("The part study needs --corpus NAME=PATH, the text that its models read.")
    args.out.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + 60 * args.minutes
    outcomes: list[Outcome] = []
    chosen = [part for part in PARTS if part.name in wanted]
    for part in chosen:
        print(f"== {part.name}: {part.proves}", flush=True)
        share = 1.0 if part is chosen[-1] else SHARE
        outcomes.append(run(part, args, share * (deadline - time.monotonic())))
        write_summary(args, outcomes)
    print(summary(outcomes))
    return int(any(outcome.state == "FAILED" for outcome in outcomes))


def run(part: Part, args: argparse.Namespace, limit: float) -> Outcome:
    """Run one part for at most ``limit`` seconds."""
    if limit < LEAST_SECONDS:
        return Outcome(part, "left out", "no time was left")
    report = args.out / "tests.xml"
    # Beside the folder: what comes back from a borrowed machine is few files.
    log = args.out.with_name(f"{args.out.name}.log")
    began = time.monotonic()
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    if args.rehearse:
        environment |= {"CUDA_VISIBLE_DEVICES": "", "ALIBI_GPU_REHEARSAL": "1"}
    with log.open("a", encoding="utf-8") as stream:
        print(f"== {part.name}", file=stream, flush=True)
        words = command(part, args, report, limit)
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
    seconds = time.monotonic() - began
    if part.name == "tests" and report.exists():
        state, detail = save_tests(report, args.out / "tests.json", seconds)
        if code != 0 and state == "proven":
            detail += "; the others were not reached in time"
        report.unlink()
        return Outcome(part, state, detail, seconds)
    if part.name == "study" and (models := pack_study(args.out)):
        rest = "" if code == 0 else "; the others were not reached in time"
        return Outcome(part, "proven", f"{models} models trained, study.zip{rest}", seconds)
    if code is None:
        return Outcome(part, "left out", "it did not end in time", seconds)
    if code != 0:
        lines = log.read_text(encoding="utf-8").rstrip().splitlines()
        print("\n".join(lines[-20:]))
        return Outcome(part, "FAILED", first_line(lines[-1]), seconds)
    return Outcome(part, "proven", f"{part.name}.json", seconds)


def command(part: Part, args: argparse.Namespace, report: Path, limit: float) -> list[str]:
    """The process of a part, which is killed after ``limit`` seconds."""
    if part.name == "tests":
        options = f"-q -m gpu -p no:cacheprovider --junitxml={report} tests/gpu "
        # pytest writes its report when it ends: let it stop by itself, between two tests.
        options += f"tests/models/test_every_method.py --session-timeout={0.8 * limit:.0f}"
        return [sys.executable, "-m", "pytest", *options.split()]
    options = (part.rehearsal if args.rehearse else part.options).split()
    if part.name == "study":
        folder = study_folder(args.out)
        options += ["--corpus", args.corpus, "--work-dir", str(folder)]
        options += ["--results", str(folder / "results")]
        return [sys.executable, "-m", "alibi_fairseq", "study", *options]
    options += ["--out", str(args.out / f"{part.name}.json")]
    checkpoint = args.weights / "alibi" / "checkpoint_last.pt"
    if part.name == "attention" and checkpoint.exists():
        options += ["--path", str(checkpoint), "--data", str(args.weights / "data-bin")]
    return [sys.executable, "-m", f"benchmarks.{part.name}", *options]


def study_folder(out: Path) -> Path:
    """Where models are trained; beside the folder that comes back. The next call goes on there."""
    return out.with_name(f"{out.name}-study")


def pack_study(out: Path) -> int:
    """Put what is kept of the finished models into one file; returns their number."""
    cells = study_folder(out) / "results" / "cells"
    finished = sorted(cells.glob("*/cell.json"))
    if finished:
        with ZipFile(out / "study.zip", "w", ZIP_DEFLATED) as archive:
            for cell in finished:
                for file in sorted(cell.parent.glob("*.json")):
                    archive.write(file, file.relative_to(cells.parent))
    return len(finished)


def save_tests(report: Path, path: Path, seconds: float) -> tuple[str, str]:
    """Write pytest's report as results; returns the state and what to say of it."""
    cells, failures, skipped = [], [], 0
    for case in ElementTree.parse(report).iter("testcase"):
        if case.get("name") is None:  # the one that was interrupted
            continue
        problem = next((child for child in case if child.tag in ("failure", "error")), None)
        reason = next((child for child in case if child.tag == "skipped"), None)
        skipped += reason is not None
        cell = {"name": case.get("name"), "baseline": None, "ratio": None}
        cell["outcome"] = "failed" if problem is not None else "passed"
        if reason is not None:
            cell |= {"outcome": "skipped", "reason": first_line(reason.get("message"))}
        if problem is not None:
            cell["reason"] = first_line(problem.get("message"))
            failures.append(f"{cell['name']}: {cell['reason']}")
        cells.append(cell)
    provenance = collect_provenance(seconds=seconds, command=["scripts/gpu_check.sh"])
    save_document(new_document("benchmark", "random tokens", provenance, cells), path)
    passed = len(cells) - skipped - len(failures)
    counts = f"{passed} passed, {skipped} do not apply here"
    if failures or not passed:
        return "FAILED", "; ".join([f"{len(failures)} failed, {counts}", *failures[:5]])
    return "proven", counts


def first_line(text: str | None) -> str:
    lines = [line.strip() for line in (text or "").splitlines() if line.strip()]
    return lines[0][:200] if lines else "no message"


def summary(outcomes: list[Outcome]) -> str:
    """One screen: what was proven, what failed and with which line, what was left out."""
    source = collect_provenance(seconds=0, command=["scripts/gpu_check.sh"])
    machine = source["hardware"]["gpu"] or f"{source['hardware']['cpu']}: A REHEARSAL WITHOUT A GPU"
    head = [
        f"{machine}",
        f"commit {(source['git_commit'] or 'unknown')[:10]}, torch {source['versions']['torch']}, "
        f"Python {source['versions']['python']}, {source['date'][:10]}",
    ]
    ran = {outcome.part.name for outcome in outcomes}
    missing = [f"left out  {part.name:13s}          not asked for, or not reached"
               for part in PARTS if part.name not in ran]  # fmt: skip
    return "\n".join([*head, *(outcome.line() for outcome in outcomes), *missing])


def write_summary(args: argparse.Namespace, outcomes: list[Outcome]) -> None:
    with atomic_write(args.out / "summary.txt") as file:
        file.write(summary(outcomes) + "\n")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BadInput as error:
        print(f"gpu_check.sh: error: {error}", file=sys.stderr)
        sys.exit(2)
