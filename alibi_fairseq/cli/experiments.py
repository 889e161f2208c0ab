"""What all experiments have in common on the command line."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from ..data.pipeline import positive
from ..errors import UserInputError
from .options import CliCommand, option

if TYPE_CHECKING:
    from ..runs.runner import Experiment


@dataclass(kw_only=True)
class ExperimentOptions(CliCommand):
    """A command that carries out an experiment; returns 75 if it was asked to stop."""

    parallel: int | None = option(
        "runs at a time (default: as many as there are GPUs for, or one per core), or SLURM jobs",
        None,
        type=positive,
        metavar="N",
    )
    dry_run: bool = option("print the commands of all runs", False)
    slurm: bool = option("submit the work as SLURM jobs and exit (docs/cluster.md)", False)
    slurm_option: list[str] = option(
        "an option of sbatch, such as partition=gpu, time=8:00:00 or mem=64G (repeatable)",
        (),
        action="append",
        metavar="NAME=VALUE",
    )
    job: str | None = option(argparse.SUPPRESS, None)  # what one of the jobs does
    arguments: Sequence[str] = ()

    def run_experiment(self, experiment: Experiment) -> int:
        """Carry out an experiment, show it, submit it as jobs, or do the work of one job."""
        from ..runs import runner, slurm

        if self.job:
            return slurm.run_job(experiment, self.job)
        if self.slurm_option and not self.slurm:
            raise UserInputError("--slurm-option requires --slurm. Pass both.")
        options = dict(given.partition("=")[::2] for given in self.slurm_option)
        if not all(name and value for name, value in options.items()):
            raise UserInputError(
                f"--slurm-option takes NAME=VALUE, not '{' '.join(self.slurm_option)}'."
            )
        if self.dry_run:
            jobs = (
                slurm.format_dry_run(slurm.make_stages(experiment), options) if self.slurm else None
            )
            print(jobs or runner.format_dry_run(experiment))
            return 0
        if self.slurm:
            submit = partial(slurm.submit, experiment, self.arguments, options, self.parallel)
            return runner.run_with_exit_code(submit)
        return runner.execute_experiment(experiment, self.parallel)
