"""Work in jobs of a cluster: one prepares the data, one trains each model, one evaluates it, one reports.

A job is one of our commands, typed as it was, with ``--job NAME``. It does its part with the stamps
and locks of the work done on one machine, so either can go on with what the other has left. What
follows what is in :func:`stages_of`; :mod:`.slurm` submits it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ..errors import BadInput
from .command import Command
from .lock import locked
from .step import Step, exit_code, run_step

#: What a job does; the second and the third with the name of a chain behind a colon.
PREPARE, TRAIN, EVALUATE, REPORT = "prepare", "train", "evaluate", "report"


class Work(Protocol):
    """Something like a comparison: data, chains of steps that need it, and a report."""

    @property
    def folder(self) -> Path:
        """The folder for everything."""

    @property
    def names(self) -> list[str]:
        """Of the chains, in their order."""

    @property
    def prepared(self) -> bool:
        """Whether the data is there."""

    def prepare(self) -> None:
        """Make the data."""

    def steps(self, name: str) -> Sequence[Step]:
        """A chain; the data must be there."""

    def report(self) -> None:
        """Write and print the outcome."""


@dataclass(frozen=True)
class Stage:
    """Jobs that may run at the same time.

    Attributes:
        title: for messages.
        jobs: of each, the arguments of ``alibi-fairseq``.
        gpus: of each.
        in_order: the n-th job needs the n-th of the stage before, not all of them.
    """

    title: str
    jobs: list[list[str]]
    gpus: int = 0
    in_order: bool = False


def stages_of(work: Work, words: list[str], gpus: int) -> list[Stage]:
    """The jobs that finish a work.

    Args:
        words: the arguments of ``alibi-fairseq`` that describe the work.
        gpus: of each training; an evaluation uses one of them at most.
    """
    stages = []
    if not work.prepared:
        stages.append(Stage("preparing the data", [[*words, "--job", PREPARE]]))
    left = [
        name
        for name in work.names
        if not (work.prepared and all(step.done() for step in work.steps(name)))
    ]
    if left:
        train = [[*words, "--job", f"{TRAIN}:{name}"] for name in left]
        evaluate = [[*words, "--job", f"{EVALUATE}:{name}"] for name in left]
        stages.append(Stage("training", train, gpus))
        stages.append(Stage("evaluating", evaluate, min(1, gpus), in_order=True))
    return [*stages, Stage("reporting", [[*words, "--job", REPORT]])]


def run_job(work: Work, job: str, option: str) -> int:
    """Do what one job is for.

    Args:
        job: ``prepare``, ``train:NAME``, ``evaluate:NAME`` or ``report``.
        option: the flag that names the work's folder, for messages.

    Returns:
        The exit code, see :func:`.exit_code`.
    """
    kind, _, name = job.partition(":")

    def do() -> None:
        if kind in (PREPARE, REPORT):
            with locked(work.folder, option):
                work.prepare() if kind == PREPARE else work.report()
            return
        if kind not in (TRAIN, EVALUATE) or name not in work.names:
            raise BadInput(f"--job: there is no job '{job}' here.")
        if not work.prepared:
            raise BadInput(f"--job {job}: the data in {work.folder} is not prepared yet.")
        for step in work.steps(name):
            if is_training(step) == (kind == TRAIN):
                run_step(step)

    return exit_code(do)


def is_training(step: Step) -> bool:
    return isinstance(step.work, Command) and step.work.updates > 0
