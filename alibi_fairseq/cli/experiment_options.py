"""Options that every experiment has, and what they do."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path

from ..errors import BadInput


def names(text: str) -> list[str]:
    """Values that commas separate."""
    return [part.strip() for part in text.split(",") if part.strip()]


def add_experiment_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that all experiments share."""
    parser.add_argument(
        "--parallel",
        type=int,
        metavar="N",
        help="runs at a time (default: as many as there are GPUs for, or one per core), or SLURM jobs",
    )
    parser.add_argument(
        "--hours",
        type=float,
        metavar="H",
        help="measure this machine first and plan what fits into H hours",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print the commands of all runs and what they cost"
    )
    parser.add_argument("--job", help=argparse.SUPPRESS)  # what one of the jobs does
    add_slurm_arguments(parser)


def add_corpus_argument(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument(
        "--corpus",
        action="append",
        default=[],
        metavar="NAME=PATH",
        help=f"{text} (repeatable)",
    )


def corpus_paths(given: list[str], known: Iterable[str]) -> dict[str, Path]:
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


def run_experiment(args: argparse.Namespace, experiment, plans_itself: bool = False) -> int:
    """Carry out an experiment, show it, submit it as jobs, or do the work of one job.

    Args:
        experiment: an :class:`alibi_fairseq.experiments.runner.Experiment`.
        plans_itself: whether it sees to ``--hours``; otherwise the runs that fit are done.
    """
    import torch

    from ..experiments import runner, slurm

    if args.parallel is not None and args.parallel < 1:
        raise BadInput(f"--parallel must be at least 1, not {args.parallel}.")
    if args.hours is not None and not args.hours > 0:
        raise BadInput(f"--hours must be above 0, not {args.hours}.")
    if args.hours is not None and wants_slurm(args):
        raise BadInput("--hours measures the machine it runs on; leave it out with --slurm.")
    if args.job:
        return slurm.run_job(experiment, args.job)
    if wants_slurm(args):
        gpus = experiment.gpus if args.slurm or torch.cuda.is_available() else 0
        stages = slurm.stages_of(experiment, shared_arguments(args, "--parallel"), gpus)
        return hand_over(args, stages, experiment.folder, experiment.option, args.parallel)
    if args.dry_run:
        print(runner.describe(experiment))
        return 0
    return runner.carry_out(experiment, args.parallel, None if plans_itself else args.hours)


def add_slurm_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of every verb whose work can be handed over."""
    group = parser.add_argument_group("SLURM (docs/cluster.md)")
    group.add_argument(
        "--slurm", action="store_true", help="submit the work as SLURM jobs and exit"
    )
    group.add_argument(
        "--slurm-local",
        action="store_true",
        help="the same jobs as processes of this machine, to try them out",
    )
    group.add_argument(
        "--slurm-option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of sbatch, such as partition=gpu, time=8:00:00 or mem=64G (repeatable)",
    )


def wants_slurm(args: argparse.Namespace) -> bool:
    """Whether the work is to be handed over.

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


def shared_arguments(args: argparse.Namespace, *without: str) -> list[str]:
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
    args: argparse.Namespace,
    stages: Sequence,
    folder: Path,
    option: str = "--out",
    at_once: int | None = None,
) -> int:
    """Submit the jobs, or show them with ``--dry-run``.

    Args:
        stages: see :func:`alibi_fairseq.experiments.slurm.stages_of`.
        folder: of the work.
        option: the flag that names it.
        at_once: jobs at the same time.
    """
    from ..experiments import slurm
    from ..experiments.runner import exit_code
    from ..files import locked

    pairs = [given.partition("=")[::2] for given in args.slurm_option]
    if wrong := [given for given, pair in zip(args.slurm_option, pairs) if not all(pair)]:
        raise BadInput(f"--slurm-option takes NAME=VALUE, not '{wrong[0]}'.")
    cluster = slurm.Cluster(args.slurm_local, dict(pairs), at_once)
    if args.dry_run:
        print(slurm.describe(stages, cluster))
        return 0

    def do() -> None:
        # Jobs on this machine take the lock themselves.
        with nullcontext() if cluster.local else locked(folder / "lock", option, "command"):
            slurm.submit(stages, folder, cluster)

    return exit_code(do)
