"""Options of verbs whose work can be handed to SLURM, and the handing over."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from ..errors import BadInput


def add_slurm_arguments(parser: argparse.ArgumentParser, has_jobs: bool = True) -> None:
    """Add the options that all such verbs share.

    Args:
        has_jobs: the verb's own work is cut into jobs by name.
    """
    group = parser.add_argument_group("SLURM (docs/cluster.md)")
    group.add_argument(
        "--slurm", action="store_true", help="hand the work in as jobs of SLURM and return"
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
    if has_jobs:
        group.add_argument("--job", help=argparse.SUPPRESS)  # what one of the jobs does


def wants_slurm(args: argparse.Namespace) -> bool:
    """Whether the work is to be handed over.

    Raises:
        BadInput: an option has an invalid value.
    """
    if args.slurm and args.slurm_local:
        raise BadInput("Choose one of --slurm and --slurm-local.")
    if args.slurm_option and not args.slurm:
        raise BadInput("--slurm-option needs --slurm.")
    if (args.slurm or args.slurm_local) and "SUBMITIT_EXECUTOR" in os.environ:
        raise BadInput("A job cannot submit jobs; leave out --slurm.")
    return args.slurm or args.slurm_local


def words_of_a_job(args: argparse.Namespace, *without: str) -> list[str]:
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
        stages: see :func:`alibi_fairseq.workflow.stages_of`.
        folder: of the work.
        option: the flag that names it.
        at_once: jobs at the same time.
    """
    from ..workflow import exit_code, locked, slurm

    options = {}
    for given in args.slurm_option:
        name, equals, value = given.partition("=")
        if not name or not equals:
            raise BadInput(f"--slurm-option takes NAME=VALUE, not '{given}'.")
        options[name] = value
    cluster = slurm.Cluster(args.slurm_local, options, at_once)
    if args.dry_run:
        print(slurm.describe(stages, cluster))
        return 0

    def do() -> None:
        # Jobs on this machine take the lock themselves.
        with nullcontext() if cluster.local else locked(folder, option):
            slurm.submit(stages, folder, cluster)

    return exit_code(do)
