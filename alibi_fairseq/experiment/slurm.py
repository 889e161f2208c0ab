"""Submission of an experiment as SLURM jobs, with the library submitit.

One job prepares the data, one executes each learning-rate trial, one trains and evaluates each
model, and one writes the report. If a training uses several GPUs, a job of its own with one GPU
evaluates its model. Each stage is a job array, and ``--dependency`` lets it wait for the stage
before. If the data cannot be prepared, SLURM cancels all later stages. If a trial or a run fails,
the others go on, and the report says what it lacks. A job is the user's command with ``--job
NAME``; that of a comparison reads the configuration as it was when the jobs were submitted. It uses
the same completion markers and locks as work on one machine, so either can resume the other. A job
that SLURM warns before its time is up saves and requeues itself.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ..errors import STOPPED_EARLY, UserInputError
from ..files import locked
from .child_process import ALIBI
from .nodes import CONTAINER
from .runner import (
    Experiment,
    report_on_complete_runs,
    run_with_exit_code,
    unfinished_runs,
)
from .slots import DEFAULT_SLOT, Resources, Slot, make_slots
from .stoppable_command import execute_command
from .stopping import stop_requests

#: Seconds before its end at which a job is warned, as in scripts/train.sbatch.
WARNING_SECONDS = 180
#: Signal of that warning. All processes that we start handle or ignore it from the beginning.
WARNING_SIGNAL = "USR1"
TIME_LIMIT = "24:00:00"
#: CPU cores of a job, and of each process of a training with several, as in scripts/train.sbatch.
MINIMUM_CORES = 4
CORES_PER_PROCESS = 2
GPU_OPTION = "gpus-per-node"
#: Number of jobs of a stage that run at the same time, unless the user sets it.
MAX_PARALLEL_JOBS = 256
#: Environment variables that describe the Python environment of a cluster (docs/slurm.md).
MODULES = "ALIBI_MODULES"
CONDA = "ALIBI_CONDA_ENV"
#: Seconds that the first job waits for the end of its submission, whose sbatch may be slow.
SUBMISSION_SECONDS = 600
#: What a job uses that neither trains nor evaluates.
NO_GPU = Resources(gpus=0)


@dataclass(frozen=True)
class Stage:
    """Jobs that may run at the same time.

    Attributes:
        title: what the jobs do, such as ``tuning``.
        jobs: job names, as :func:`run_job` takes them.
        resources: what each job uses.
        required: True if no later stage starts unless all jobs succeed.
    """

    title: str
    jobs: list[str]
    resources: Resources = NO_GPU
    required: bool = False


def next_dependency(submitted: Sequence[tuple[Stage, str]]) -> str:
    """Return the condition for the next stage, as an option of ``sbatch``; empty for the first.

    Args:
        submitted: stages so far, each with the number of its job array.
    """
    # Every later stage names the required ones: a stage that SLURM canceled fulfills "afterany".
    conditions = [f"afterok:{array}" for stage, array in submitted if stage.required]
    for stage, array in submitted[-1:]:
        if not stage.required:
            conditions.append(f"afterany:{array}")
    return ",".join(conditions)


def make_stages(experiment: Experiment) -> list[Stage]:
    """Return the jobs that complete an experiment."""
    plan = experiment.plan()
    runs = unfinished_runs(experiment, plan)
    trial_jobs = [f"run:{trial.name}" for trial in plan.unfinished_trials()]
    of_run = experiment.resources
    tuning = Stage("tuning", trial_jobs, of_run)
    # Also of prepared data, because this job checks that its settings are still the same.
    stages = [Stage("preparing the data", ["prepare"], required=True), tuning]
    if of_run.several_gpus:
        train_jobs = [f"train:{run.name}" for run in runs if not run.is_trained]
        evaluate_jobs = [f"evaluate:{run.name}" for run in runs]
        one_gpu = Resources(memory_gb=of_run.memory_gb)
        stages.append(Stage("training", train_jobs, of_run))
        stages.append(Stage("evaluating", evaluate_jobs, one_gpu))
    else:
        run_jobs = [f"run:{run.name}" for run in runs]
        stages.append(Stage("training and evaluating", run_jobs, of_run))
    stages.append(Stage("reporting", ["report"]))
    return [stage for stage in stages if stage.jobs]


def run_job(experiment: Experiment, job: str) -> int:
    """Do the work of one job, and return an exit code as :func:`.runner.run_with_exit_code`.

    Args:
        job: ``prepare``, ``run:NAME``, ``train:NAME``, ``evaluate:NAME``, or ``report``.
    """

    def do_job() -> None:
        if job == "prepare":
            lock = experiment.folder / "lock"
            with locked(lock, experiment.folder_option, "command", wait=SUBMISSION_SECONDS):
                experiment.prepare()
        elif job == "report":
            with locked(experiment.folder / "lock", experiment.folder_option, "command"):
                _report(experiment)
        else:
            _execute_run(experiment, job)

    return run_with_exit_code(do_job)


def _report(experiment: Experiment) -> None:
    """Write the report.

    Raises:
        UserInputError: a run is not complete, and the report lacks it.
    """
    incomplete = report_on_complete_runs(experiment)
    if incomplete:
        names = ", ".join(run.name for run in incomplete)
        raise UserInputError(
            f"These runs are not complete: {names}. Submit the experiment again to repeat them."
        )


def _execute_run(experiment: Experiment, job: str) -> None:
    """Execute the run or trial of a job, or its training or evaluations only.

    Raises:
        UserInputError: the experiment no longer has the run.
    """
    work, _, name = job.partition(":")
    try:
        run = experiment.plan().find(name)
    except LookupError as error:
        raise UserInputError(
            f"There is no run {name}, because its plugin was edited while the job waited. Submit "
            "the experiment again, or undo the edit first."
        ) from error
    if work == "train":
        run.train(_job_slot(experiment.resources.gpus))
    elif work == "evaluate":
        run.evaluate(_job_slot(gpus=1))
    else:
        run.execute(_job_slot(experiment.resources.gpus))


def _job_slot(gpus: int) -> Slot:
    """Return the slot of a job. It has no more GPUs than each run uses.

    A job may have all GPUs of a node. fairseq would train on all of them, and each update would
    read as many batches as there are GPUs.
    """
    import torch

    # The environment of a job determines the number of threads of runs on the CPU.
    if gpus == 0 or torch.cuda.device_count() <= gpus:
        return DEFAULT_SLOT
    return make_slots(run_count=1, gpus=gpus)[0]


def format_stages(stages: Sequence[Stage], user_options: Mapping[str, str]) -> str:
    """Return stages as text: their jobs, dependencies, and options of ``sbatch``."""
    lines = ["# Each job is this command with --job NAME."]
    submitted: list[tuple[Stage, str]] = []
    for number, stage in enumerate(stages, 1):
        count = len(stage.jobs)
        plural = "" if count == 1 else "s"
        title = f"# {stage.title}: {count} job{plural}"
        if submitted:
            title += f", after '{submitted[-1][0].title}'"
        lines.append(title)
        options = sbatch_options(stage, user_options, next_dependency(submitted))
        flags = [f"--{name}={value}" for name, value in options.items()]
        lines.append(f"# sbatch {' '.join(flags)}")
        lines += stage.jobs
        lines.append("")
        submitted.append((stage, f"N{number}"))  # the real number is not known yet
    return "\n".join(lines)


def sbatch_options(
    stage: Stage, user_options: Mapping[str, str], dependency: str = ""
) -> dict[str, object]:
    """Return the options of ``sbatch`` for the jobs of a stage.

    Args:
        user_options: options for all jobs, such as ``{"partition": "gpu"}``. Those about GPUs apply
            only to stages with GPUs, and ``gpus-per-node=0`` removes that option. ``gres=gpu`` or
            ``gres=gpu:a100`` replaces it, with the number of GPUs. A ``dependency`` is added to
            that on earlier stages.
        dependency: condition on earlier stages; empty for the first stage.
    """
    of_job = stage.resources
    cores = MINIMUM_CORES
    if of_job.processes > 1:
        cores = max(MINIMUM_CORES, CORES_PER_PROCESS * of_job.processes)
    options: dict[str, object] = {"time": TIME_LIMIT, "cpus-per-task": cores}
    if of_job.nodes > 1:
        options |= {"nodes": of_job.nodes, "ntasks-per-node": 1}
    # The options of SLURM about memory exclude each other.
    if of_job.memory_gb and not any(name.startswith("mem") for name in user_options):
        options["mem"] = f"{of_job.memory_gb * of_job.processes}G"
    if of_job.gpus:
        options[GPU_OPTION] = of_job.gpus
    for name, value in user_options.items():
        about_gpus = name.startswith(("gpu", "gres"))
        if of_job.gpus and name == "gres" and value.startswith("gpu"):
            options.pop(GPU_OPTION, None)
            last = value.rpartition(":")[2]
            options[name] = value if last.isdigit() else f"{value}:{of_job.gpus}"
        elif of_job.gpus or not about_gpus:
            options[name] = value
    if options.get(GPU_OPTION) == "0":
        del options[GPU_OPTION]
    if dependency:
        dependencies = [dependency]
        user_dependency = user_options.get("dependency", "")
        # SLURM cannot combine ",", all jobs, with "?", any job. The stage before waited for any.
        if user_dependency and "?" not in user_dependency:
            dependencies.insert(0, user_dependency)
        options["dependency"] = ",".join(dependencies)
    return options


def submit(
    experiment: Experiment,
    freeze: Callable[[], Sequence[str]],
    user_options: Mapping[str, str],
    max_parallel_jobs: int | None,
) -> None:
    """Submit the jobs. Their logs are written to ``jobs/`` in the folder of the experiment.

    Args:
        freeze: function that returns the arguments of ``alibi-fairseq`` in the jobs, the command
            first, after it has written the files that they name.
        user_options: options of ``sbatch``.
        max_parallel_jobs: number of jobs of a stage that run at the same time (default: 256).
    """
    import submitit

    logs = experiment.folder / "jobs"
    submitit.JobEnvironment.USR_SIG = WARNING_SIGNAL
    os.environ["SUBMITIT_PREEMPT_SIGNAL"] = WARNING_SIGNAL  # inherited by the jobs
    container = os.environ.get(CONTAINER)
    python = f"{container} python" if container else shlex.quote(sys.executable)
    submitted: list[tuple[Stage, str]] = []
    with locked(experiment.folder / "lock", experiment.folder_option, "command"):
        command, *arguments = freeze()
        for stage in make_stages(experiment):
            options = sbatch_options(stage, user_options, next_dependency(submitted))
            parameters = _submitit_parameters(stage, options)
            parameters["array_parallelism"] = max_parallel_jobs or MAX_PARALLEL_JOBS
            if stage.resources.nodes > 1:
                # One process, on the first node, starts the training on all of them (nodes.py).
                parameters["srun_args"] = ["--overlap", "--nodes=1", "--ntasks=1"]
            executor = submitit.SlurmExecutor(logs / "%j", python=python)
            executor.update_parameters(**parameters)
            # Not at the end, where --job would be a text if the arguments contain "--".
            commands = [[command, "--job", job, *arguments] for job in stage.jobs]
            jobs = executor.map_array(execute_with_requeue, commands)
            array = jobs[0].job_id.partition("_")[0]
            submitted.append((stage, array))
            print(f"{stage.title}: {len(jobs)} jobs in array {array}", flush=True)
    print(f"Logs: {logs}. Rerun the same command after the last job to submit unfinished work.")


def _submitit_parameters(stage: Stage, options: Mapping[str, object]) -> dict[str, object]:
    """Return the parameters of submitit's executor for the jobs of a stage.

    Args:
        options: options of ``sbatch`` (:func:`sbatch_options`).
    """
    return {
        "job_name": f"alibi-{stage.title.split()[0]}",
        "signal_delay_s": WARNING_SECONDS,
        "stderr_to_stdout": True,
        "setup": setup_lines(),
        "additional_parameters": {
            "requeue": True,
            # A job ends if the data cannot be prepared, instead of waiting forever.
            "kill-on-invalid-dep": "yes",
            **options,
        },
    }


def setup_lines() -> list[str]:
    """Return the bash commands that set up the environment of a job, as in scripts/train.sbatch."""
    # Since SLURM 22.05, srun does not take the number of cores from the job.
    lines = ['export SRUN_CPUS_PER_TASK="${SLURM_CPUS_PER_TASK:-1}"']
    modules = os.environ.get(MODULES)
    if modules:
        lines.append(f"module load {modules} || exit")
    environment = os.environ.get(CONDA)
    if environment:
        lines.append('source "$(conda info --base)/etc/profile.d/conda.sh" || exit')
        lines.append(f"conda activate {shlex.quote(environment)} || exit")
    return lines


def execute_with_requeue(argv: list[str]) -> None:
    """Run the command of a job in a process of its own, and requeue the job if SLURM interrupts it.

    Raises:
        RuntimeError: the command failed. SLURM then does not start the jobs that depend on this
            one.
    """
    with stop_requests() as stop:
        code = execute_command([*ALIBI, *argv], slot=Slot(stop=stop))
    if code == STOPPED_EARLY and stop.signal == signal.SIGUSR1:
        print("saved; requeuing the job", flush=True)
        from submitit import JobEnvironment

        JobEnvironment()._requeue(0)  # submitit only logs the number
        sys.exit()  # SystemExit, so that submitit records neither a result nor an error
    if code:
        raise RuntimeError(f"alibi-fairseq {shlex.join(argv)} failed with exit code {code}")
