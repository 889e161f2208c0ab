"""Options that every experiment has, and what they do."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import BadInput
from .options import Verb, option

if TYPE_CHECKING:
    from ..experiments.runner import Experiment
    from ..experiments.slurm import Stage


def names(text: str) -> list[str]:
    """Values that commas separate."""
    return [part.strip() for part in text.split(",") if part.strip()]


@dataclass(kw_only=True)
class SlurmOptions(Verb):
    """A command whose work can be handed over."""

    slurm: bool = option("submit the work as SLURM jobs and exit (docs/cluster.md)", False)
    slurm_local: bool = option("the same jobs as processes of this machine, to try them out", False)
    slurm_option: list[str] = option(
        "an option of sbatch, such as partition=gpu, time=8:00:00 or mem=64G (repeatable)",
        (),
        action="append",
        metavar="NAME=VALUE",
    )
    dry_run: bool = option("print the commands of all runs and what they cost", False)
    arguments: Sequence[str] = ()


@dataclass(kw_only=True)
class ExperimentOptions(SlurmOptions):
    """A command that carries out an experiment; returns 75 if it was asked to stop."""

    parallel: int | None = option(
        "runs at a time (default: as many as there are GPUs for, or one per core), or SLURM jobs",
        None,
        metavar="N",
    )
    hours: float | None = option(
        "measure this machine first and plan what fits into H hours", None, metavar="H"
    )
    job: str | None = option(argparse.SUPPRESS, None)  # what one of the jobs does

    def run_experiment(self, experiment: Experiment, plans_itself: bool = False) -> int:
        """Carry out an experiment, show it, submit it as jobs, or do the work of one job.

        Args:
            plans_itself: whether it sees to ``hours``; otherwise the runs that fit are done.
        """
        import torch

        from ..experiments import runner, slurm

        if self.parallel is not None and self.parallel < 1:
            raise BadInput(f"--parallel must be at least 1, not {self.parallel}.")
        if self.hours is not None and not self.hours > 0:
            raise BadInput(f"--hours must be above 0, not {self.hours}.")
        if self.hours is not None and wants_slurm(self):
            raise BadInput("--hours measures the machine it runs on; leave it out with --slurm.")
        if self.job:
            return slurm.run_job(experiment, self.job)
        if wants_slurm(self):
            gpus = experiment.gpus if self.slurm or torch.cuda.is_available() else 0
            stages = slurm.stages_of(experiment, shared_arguments(self, "--parallel"), gpus)
            return hand_over(self, stages, experiment.folder, experiment.option, self.parallel)
        if self.dry_run:
            print(runner.describe(experiment))
            return 0
        return runner.carry_out(experiment, self.parallel, None if plans_itself else self.hours)


def corpus_option(help: str) -> Any:
    return option(f"{help} (repeatable)", (), action="append", metavar="NAME=PATH")


def corpus_paths(given: Sequence[str], known: Iterable[str]) -> dict[str, Path]:
    """The values ``NAME=PATH`` of ``--corpus`` as paths by name.

    Raises:
        BadInput: a name or a path is wrong.
    """
    found = {}
    for text in given:
        name, _, path = text.partition("=")
        if name not in known or not path:
            raise BadInput(
                f"--corpus takes NAME=PATH with one of the names {', '.join(known)}, not '{text}'."
            )
        found[name] = Path(path)
        if not found[name].exists():
            raise BadInput(f"--corpus {text}: there is no such file or folder.")
    return found


def wants_slurm(args: Any) -> bool:
    """Whether the work is to be handed over.

    Args:
        args: the values of :class:`SlurmOptions`.

    Raises:
        BadInput: the options contradict each other, or this is a job already.
    """
    if args.slurm and args.slurm_local:
        raise BadInput("Choose one of --slurm and --slurm-local.")
    if args.slurm_option and not args.slurm:
        raise BadInput("--slurm-option needs --slurm.")
    if (args.slurm or args.slurm_local) and "SUBMITIT_EXECUTOR" in os.environ:
        raise BadInput("A job cannot submit jobs; leave out --slurm.")
    return args.slurm or args.slurm_local


def shared_arguments(args: Any, *without: str) -> list[str]:
    """The arguments of this command that its jobs share.

    Args:
        without: further options, with one value each, to leave out.
    """
    own = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for flag in ("--slurm", "--slurm-local", "--dry-run"):
        own.add_argument(flag, action="store_true")
    for flag in ("--slurm-option", *without):
        own.add_argument(flag, action="append")
    _, words = own.parse_known_args(args.arguments)
    if short := [word for word in words if word.startswith(("--sl", "--dr"))]:
        raise BadInput(f"Write {short[0]} out in full.")
    return words


def hand_over(
    args: Any,
    stages: Sequence[Stage],
    folder: Path,
    flag: str = "--out",
    at_once: int | None = None,
) -> int:
    """Submit the jobs, or show them with ``--dry-run``.

    Args:
        flag: the option that names the folder.
        at_once: jobs of a stage at the same time.
    """
    from ..experiments import slurm
    from ..experiments.runner import exit_code
    from ..files import locked

    pairs = [given.partition("=")[::2] for given in args.slurm_option]
    if not all(name and value for name, value in pairs):
        raise BadInput(f"--slurm-option takes NAME=VALUE, not '{' '.join(args.slurm_option)}'.")
    cluster = slurm.Cluster(args.slurm_local, dict(pairs), at_once)
    if args.dry_run:
        print(slurm.describe(stages, cluster))
        return 0

    def do() -> None:
        # Jobs on this machine take the lock themselves.
        with nullcontext() if cluster.local else locked(folder / "lock", flag, "command"):
            slurm.submit(stages, folder, cluster)

    return exit_code(do)
