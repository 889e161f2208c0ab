"""Submits an experiment as SLURM jobs, by the library submitit.

One job prepares the data, one makes each trial of a learning rate, one trains and evaluates each
model, one reports. Each stage is an array; ``--dependency`` lets it wait for the one before. A job is
the command as it was typed, with ``--job NAME``: it does its part with the stamps and locks of work
done on one machine, so either can resume the other. A job that is warned before its time is up saves
and requeues itself.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..errors import STOPPED_EARLY, UserInputError
from ..files import locked
from . import child_process
from .child_process import Slot, stop_requests
from .run import ALIBI, all_trials, trials_left
from .runner import Experiment, exit_code

#: Seconds before its end at which a job is warned, as in scripts/train.sbatch.
WARNING = 180
#: What SLURM sends then; all that we start handles or ignores it from its first moment.
SIGNAL = "USR1"
#: What a job gets unless an option says otherwise.
DEFAULTS = {"time": "24:00:00", "cpus-per-task": 4}
GPUS = "gpus-per-node"
#: Of each cluster its own: how our environment comes to be, see docs/cluster.md.
MODULES, CONDA, CONTAINER = "ALIBI_MODULES", "ALIBI_CONDA_ENV", "ALIBI_CONTAINER"


@dataclass(frozen=True)
class Stage:
    """Jobs that may run at the same time, by the names that :func:`run_job` takes."""

    title: str
    jobs: list[str]
    gpus: int = 0  # of each job


def stages_of(experiment: Experiment) -> list[Stage]:
    """The jobs that finish an experiment."""
    prepared, gpus = experiment.prepared, experiment.gpus
    runs = [run for run in experiment.runs if not (prepared and run.done)]
    stages = [
        Stage("preparing the data", [] if prepared else ["prepare"]),
        Stage("tuning", [f"run:{trial.name}" for trial in trials_left(runs)], gpus),
        Stage("training and evaluating", [f"run:{run.name}" for run in runs], gpus),
        Stage("reporting", ["report"]),
    ]
    return [stage for stage in stages if stage.jobs]


def run_job(experiment: Experiment, job: str) -> int:
    """Do what one job is for; returns an exit code, see :func:`.runner.exit_code`.

    Args:
        job: ``prepare``, ``run:NAME`` or ``report``.
    """

    def do() -> None:
        if job in ("prepare", "report"):
            with locked(experiment.folder / "lock", experiment.option, "command"):
                experiment.prepare() if job == "prepare" else experiment.report()
            return
        runs = experiment.runs
        every = (*runs, *all_trials(runs))
        run = next((run for run in every if f"run:{run.name}" == job), None)
        if run is None:
            raise UserInputError(f"--job: there is no job '{job}' here.")
        run.carry_out()

    return exit_code(do)


def describe(stages: Sequence[Stage], asked: Mapping[str, str]) -> str:
    """The jobs, with what each stage waits for and asks for."""
    lines, before = ["# Each job is this command with --job NAME."], ""
    for stage in stages:
        count = f"{len(stage.jobs)} job{'s' if len(stage.jobs) > 1 else ''}"
        options = sbatch_options(stage, asked).items()
        lines.append(f"# {stage.title}: {count}{f', after {before!r}' if before else ''}")
        lines.append("# " + " ".join(["sbatch", *(f"--{name}={value}" for name, value in options)]))
        lines += [*stage.jobs, ""]
        before = stage.title
    return "\n".join(lines)


def sbatch_options(stage: Stage, asked: Mapping[str, str]) -> dict[str, object]:
    """Options of ``sbatch`` for a job of a stage; those about GPUs are for jobs that have some.

    Args:
        asked: for all jobs, such as ``{"partition": "gpu"}``.
    """
    options: dict[str, object] = {**DEFAULTS, **({GPUS: stage.gpus} if stage.gpus else {})}
    for name, value in asked.items():
        if stage.gpus or not name.startswith(("gpu", "gres")):
            options[name] = value
    return {name: value for name, value in options.items() if (name, value) != (GPUS, "0")}


def submit(
    experiment: Experiment, arguments: Sequence[str], asked: Mapping[str, str], at_once: int | None
) -> None:
    """Submit the jobs; logs go to ``jobs/`` in the folder of the work.

    Args:
        arguments: of ``alibi-fairseq``, which describe the experiment.
        asked: options of ``sbatch``.
        at_once: jobs of a stage at the same time; None: as many as there is room for.
    """
    import submitit

    logs = experiment.folder / "jobs"
    submitit.JobEnvironment.USR_SIG = SIGNAL
    os.environ["SUBMITIT_PREEMPT_SIGNAL"] = SIGNAL  # for the jobs
    if not shutil.which("sbatch"):
        raise UserInputError("There is no sbatch here; submit from a node of a SLURM cluster.")
    container = os.environ.get(CONTAINER)
    python = f"{container} python" if container else shlex.quote(sys.executable)
    before = ""  # the array of the stage before
    with locked(experiment.folder / "lock", experiment.option, "command"):
        for stage in stages_of(experiment):
            executor = submitit.SlurmExecutor(logs / "%j", python=python)
            executor.update_parameters(
                job_name=f"alibi-{stage.title.split()[0]}",
                signal_delay_s=WARNING,
                stderr_to_stdout=True,
                setup=setup_lines(),
                array_parallelism=at_once or 256,
                additional_parameters={
                    "requeue": True,
                    # A job whose predecessor failed ends, instead of waiting for ever.
                    "kill-on-invalid-dep": "yes",
                    **sbatch_options(stage, asked),
                },
                **({"dependency": f"afterok:{before}"} if before else {}),
            )
            commands = [[*arguments, "--job", job] for job in stage.jobs]
            jobs = executor.map_array(run_command, commands)
            before = jobs[0].job_id.partition("_")[0]
            print(f"{stage.title}: {len(jobs)} of job {before}", flush=True)
    print(f"Logs: {logs}. When all have ended, the same command submits what is not done yet.")


def setup_lines() -> list[str]:
    """Commands of bash that make the environment of a job, as scripts/train.sbatch does."""
    # srun does not take over the job's number of cores by itself (since SLURM 22.05).
    lines = ['export SRUN_CPUS_PER_TASK="${SLURM_CPUS_PER_TASK:-1}"']
    if modules := os.environ.get(MODULES):
        lines.append(f"module load {modules} || exit")
    if name := os.environ.get(CONDA):
        lines.append('source "$(conda info --base)/etc/profile.d/conda.sh" || exit')
        lines.append(f"conda activate {shlex.quote(name)} || exit")
    return lines


def run_command(argv: list[str]) -> None:
    """The job itself: our command, in a process of its own.

    An error, if the command failed, keeps jobs that depend on this one from beginning.
    """
    with stop_requests() as stop:
        code = child_process.execute([*ALIBI, *argv], place=Slot(stop=stop))
    if code == STOPPED_EARLY and stop.signal == signal.SIGUSR1:
        print("saved; putting the job back into the queue", flush=True)
        from submitit import JobEnvironment

        JobEnvironment()._requeue(0)
        sys.exit()
    if code:
        raise RuntimeError(f"alibi-fairseq {shlex.join(argv)} ended with exit code {code}")
