"""Options that all commands with experiments share."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UserInputError
from ..files import check_data_path
from ..options import option, positive_integer
from .options import CliCommand

if TYPE_CHECKING:
    from ..experiment.runner import Experiment

#: Heading of these options in the help.
RUNNING = "running"


def corpus_paths(given: Sequence[str], known: Iterable[str]) -> dict[str, Path]:
    """Return the values ``NAME=PATH`` of ``--corpus`` as paths by name.

    Raises:
        UserInputError: a name is unknown or given twice, or has no path.
    """
    paths: dict[str, Path] = {}
    for text in given:
        name, _, path = text.partition("=")
        if name not in known or name in paths or not path:
            raise UserInputError(
                f"--corpus {text} is not a valid NAME=PATH. Pass one --corpus for each of "
                f"{', '.join(known)}; PATH is a file or a folder."
            )
        paths[name] = Path(path)
    return paths


@dataclass(kw_only=True)
class ExperimentOptions(CliCommand):
    """Options of a command that executes an experiment. Its exit code is 75 if it is stopped."""

    parallel: int | None = option(
        "number of concurrent runs or SLURM jobs "
        "(default: as many as the GPUs allow, or one per core)",
        None,
        type=positive_integer,
        metavar="N",
        group=RUNNING,
    )
    dry_run: bool = option("print the commands of all runs, and execute none", False, group=RUNNING)
    slurm: bool = option(
        "submit the work as SLURM jobs and exit (docs/slurm.md)", False, group=RUNNING
    )
    slurm_option: list[str] = option(
        "option of sbatch, such as partition=gpu, time=8:00:00, or mem=64G (repeatable)",
        (),
        action="append",
        metavar="NAME=VALUE",
        group=RUNNING,
    )
    job: str | None = option(argparse.SUPPRESS, None)  # name of the job to execute
    arguments: Sequence[str] = ()

    def freeze(self) -> Sequence[str]:
        """Return the arguments of jobs: those of this command."""
        return self.arguments

    def run_experiment(self, experiment: Experiment) -> int:
        """Execute an experiment, or print, submit, or execute its jobs, as the options say.

        Raises:
            UserInputError: the options of SLURM or the output folder cannot be used.
        """
        from ..experiment import runner, slurm

        check_data_path(experiment.folder, experiment.folder_option)
        if self.job:
            return slurm.run_job(experiment, self.job)
        if self.slurm_option and not self.slurm:
            raise UserInputError("--slurm-option requires --slurm. Pass both.")
        options = {}
        for text in self.slurm_option:
            name, _, value = text.partition("=")
            if not name or not value:
                raise UserInputError(f"--slurm-option takes NAME=VALUE, not '{text}'.")
            options[name] = value
        if self.dry_run:
            if self.slurm:
                print(slurm.format_stages(slurm.make_stages(experiment), options))
            else:
                print(runner.format_dry_run(experiment))
            return 0
        if self.slurm:
            submit = partial(slurm.submit, experiment, self.freeze, options, self.parallel)
            return runner.run_with_exit_code(submit)
        return runner.execute_experiment(experiment, self.parallel)
