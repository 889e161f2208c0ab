"""From what was asked for to its end: what is wrong, what is done, what is left, what came out."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ..dataprep.workspace import check_disk
from ..launcher import STOPPED_EARLY
from ..launcher.process import STOPPING
from . import costs
from .outcome import print_outcome
from .pipeline import Pipeline
from .sources import check
from .state import alone
from .steps import Failed, Step, Stopped


def carry_out(pipeline: Pipeline, items: tuple[str, ...], name: str) -> int:
    """Do what is not done yet and show the tables.

    Args:
        items: of the paper, e.g. ``("table05",)``.
        name: what was asked for, e.g. ``table5``.

    Returns:
        0; 75 when told to stop, with all that was done kept; otherwise the failed command's code.

    Raises:
        BadInput: something is wrong that can be known before the work.
    """
    try:
        with alone(pipeline.root), stopped_by_signals():
            ran = do_all(pipeline)
            print_outcome(pipeline, items)
    except Stopped:
        print("Stopped; the same command goes on from here.", file=sys.stderr)
        return STOPPED_EARLY
    except Failed as failure:
        print(f"alibi-fairseq: error: {failure}", file=sys.stderr)
        return failure.code
    if not ran:
        print(f"Nothing to do: all of {name} at the scale '{pipeline.scale.name}' is done.")
    return 0


def do_all(pipeline: Pipeline) -> bool:
    """Run every step that is not done; whether there was any."""
    look_ahead(pipeline)
    ran = False
    for data in pipeline.data.values():
        for step in data.steps():
            ran |= run_unless_done(step)
    ran |= do_runs(pipeline)
    return ran | run_unless_done(pipeline.report())


def look_ahead(pipeline: Pipeline) -> None:
    """Refuse what would fail later: texts, GPUs, folders with other work, too little disk."""
    needed = 0.0
    for data in pipeline.data.values():
        prepare = next(data.steps())
        if not prepare.done():
            check(data.source)
            prepare.check()
            needed += costs.preparation_bytes(data.source.corpus, data.source.path)
    for run in pipeline.runs:
        steps, training = pipeline.steps(run), pipeline.training(run)
        if all(step.done() for step in steps):
            continue
        if training.data.prepared:
            for step in steps:
                step.done() or step.check()
        most = costs.checkpoint_bytes(training.recipe, len(pipeline.stops(run)) - 1)
        needed += max(0, most - costs.folder_bytes(training.folder))
    check_disk(pipeline.root, needed, "What is left to do", "--work-dir")


def do_runs(pipeline: Pipeline) -> bool:
    """Train and evaluate run by run, saying how far it is; whether there was anything to do."""
    total = len(pipeline.runs)
    left = [run for run in pipeline.runs if not all(s.done() for s in pipeline.steps(run))]
    if left and len(left) < total:
        print(f"{total - len(left)} of {total} configurations are done already.")
    began = time.monotonic()
    for number, run in enumerate(left):
        position = f"[{total - len(left) + number + 1}/{total}]"
        print(f"\n{position} {run.recipe.path}{remaining(began, number, len(left))}")
        for step in pipeline.steps(run):
            run_unless_done(step)
    return bool(left)


def remaining(began: float, done: int, of: int) -> str:
    """How long the rest will take if it takes as long as what was done; empty before."""
    if not done:
        return ""
    minutes = max(1, (time.monotonic() - began) / done * (of - done) / 60)
    return (
        f" (about {minutes:,.0f} min left)"
        if minutes < 300
        else f" (about {minutes / 60:,.0f} h left)"
    )


def run_unless_done(step: Step) -> bool:
    """Whether it had to be run."""
    if step.done():
        return False
    step.check()
    print(f"{step.title}\n  {step.line}", flush=True)
    step.run()
    return True


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """SIGTERM, SIGUSR1 and Ctrl-C between two commands end the work; a command is asked first."""

    def stop(number, frame):
        raise Stopped

    before = {number: signal.signal(number, stop) for number in STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
