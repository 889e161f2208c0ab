"""scripts/train.sbatch, run by bash with fake SLURM commands."""

from __future__ import annotations

import os
import signal
import subprocess
import time

import pytest
from commands import ROOT

from alibi_fairseq import cli

TRAIN = ROOT / "scripts" / "train.sbatch"

FAKE = {
    "scontrol": """
        if [ "$1" = show ]; then printf '%s\\n' gpu07 gpu08; else echo "$@" >> "$LOG"; fi
        """,
    "squeue": 'echo "${STATE:-RUNNING}"',
    # Like srun --kill-on-bad-exit=1: options first, then the tasks, which receive the signals. The
    # first task that fails ends the others, and the highest exit code is that of srun.
    "srun": """
        while [[ "$1" == --* ]]; do
            echo "srun $1" >> "$LOG"
            [[ "$1" == --ntasks=* ]] && tasks="${1#*=}"
            shift
        done
        pids=()
        trap 'interrupted=1; kill -USR1 "${pids[@]}"' USR1
        for ((task = 0; task < tasks; task++)); do
            SLURM_PROCID=$task "$@" &
            pids+=($!)
        done
        touch "$LOG.started" # a signal before would not reach the tasks
        highest=0
        for pid in "${pids[@]}"; do
            interrupted=1
            while [ "$interrupted" -eq 1 ]; do
                interrupted=0
                code=0
                wait "$pid" || code=$?
            done
            [ "$code" -eq 0 ] || kill "${pids[@]}" 2> /dev/null
            [ "$code" -le "$highest" ] || highest=$code
        done
        exit "$highest"
        """,
}
# Replaces configs/wikitext-103/train.sh. Exits with $CODE. After SIGUSR1, the first task exits with
# 75, and any other takes so long that srun ends it.
TASK = """
    echo "task $*" >> "$LOG"
    told() {
        [ "$SLURM_PROCID" -eq 0 ] || return
        echo told >> "$LOG"
        exit 75
    }
    trap told USR1
    if [ "${WAIT:-0}" -eq 1 ]; then
        touch "$LOG.waiting$SLURM_PROCID"
        for _ in {1..500}; do sleep 0.02; done
    fi
    exit "${CODE:-0}"
    """
# Replaces scripts/environment.sh.
ENVIRONMENT = """
    ensure_training_environment() {
        [ "${OUTDATED:-0}" -eq 0 ] || exit 2
        echo "environment" >> "$LOG"
    }
    """
SUBMIT = "SLURM_SUBMIT_DIR"
JOB = {
    "SLURM_JOB_ID": "40123",
    "SLURM_JOB_NODELIST": "gpu[07-08]",
    "SLURM_NNODES": "2",
    "SLURM_GPUS_PER_NODE": "a100:8",
}


@pytest.fixture
def cluster(tmp_path):
    """Return a function that runs the batch file in a repository with fake commands."""
    executables = {f"bin/{name}": body for name, body in FAKE.items()}
    executables["configs/wikitext-103/train.sh"] = TASK
    executables["scripts/environment.sh"] = ENVIRONMENT
    for name, body in executables.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/usr/bin/env bash\n" + body)
        path.chmod(0o755)

    def start(*arguments, **changes):
        variables = {**os.environ, **JOB, SUBMIT: str(tmp_path), **changes}
        variables["PATH"] = f"{tmp_path / 'bin'}:{variables['PATH']}"
        variables["LOG"] = str(tmp_path / "log")
        environment = {name: value for name, value in variables.items() if value is not None}
        command = ["bash", TRAIN, *arguments]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(command, env=environment, cwd="/", **pipes)

    return start


def log(tmp_path):
    path = tmp_path / "log"
    return path.read_text().splitlines() if path.exists() else []


ARGUMENTS = ("wikitext-103/alibi-512", "data", "--save-dir", "run")


@pytest.mark.usefixtures("arguments_of_pytest_stay")
def test_every_node_gets_one_launcher(cluster, tmp_path):
    run = cluster(*ARGUMENTS)
    assert run.wait() == 0, run.stderr.read()
    lines = log(tmp_path)
    assert lines.pop(0) == "environment"  # once, not on each node
    assert lines[:3] == [
        "srun --ntasks=2",
        "srun --ntasks-per-node=1",
        "srun --kill-on-bad-exit=1",
    ]
    recipe, *rest = ARGUMENTS
    words = ["--nodes", "2", "--gpus", "16"]
    words += ["--rdzv-endpoint", "gpu07:24123", "--rdzv-id", "40123", *rest]
    assert [line.split() for line in lines[3:]] == 2 * [["task", "alibi-512", *words]]
    assert cli.main(["train", "--recipe", recipe, "--dry-run", *words]) == 0


HOOKS = {
    "ALIBI_MODULES": "cuda/12.4 gcc",
    "ALIBI_CONDA_ENV": "mine",
    "ALIBI_CONTAINER": "box --nv image.sif",
}


def test_variables_select_environment(cluster, tmp_path):
    programs = {
        "module": 'echo "module $*" >> "$LOG"',
        "conda": f"echo {tmp_path / 'conda'}",
        "box": 'echo "box $1 $2" >> "$LOG"; shift 2; exec "$@"',
    }
    for name, body in programs.items():
        path = tmp_path / "bin" / name
        path.write_text(f"#!/usr/bin/env bash\n{body}\n")
        path.chmod(0o755)
    profile = tmp_path / "conda" / "etc" / "profile.d" / "conda.sh"
    profile.parent.mkdir(parents=True)
    # Like the script of conda, it reads a variable that is not set.
    profile.write_text('conda() { echo "conda $*$UNSET_BY_ANYBODY" >> "$LOG"; }\n')
    run = cluster(*ARGUMENTS, SLURM_NNODES="1", **HOOKS)
    assert run.wait() == 0, run.stderr.read()
    lines = log(tmp_path)
    assert lines[:2] == ["module load cuda/12.4 gcc", "conda activate mine"]
    assert lines[2:4] == ["box --nv image.sif", "environment"]
    assert lines[-2] == "box --nv image.sif"
    assert lines[-1].startswith("task ")


def wait_for_tasks(tmp_path, count):
    """Wait until srun and its tasks can receive a signal."""
    files = [tmp_path / "log.started"]
    files += [tmp_path / f"log.waiting{task}" for task in range(count)]
    while not all(file.exists() for file in files):
        time.sleep(0.01)


@pytest.mark.parametrize(("nodes", "state"), [(1, "RUNNING"), (2, "RUNNING"), (1, "COMPLETING")])
def test_signal_reaches_run_and_job_is_requeued(cluster, tmp_path, nodes, state):
    """A job whose time limit ends while it saves is in the state COMPLETING."""
    run = cluster(*ARGUMENTS, WAIT="1", SLURM_NNODES=str(nodes), STATE=state)
    wait_for_tasks(tmp_path, nodes)
    run.send_signal(signal.SIGUSR1)
    output, errors = run.communicate()
    assert run.returncode == 0, errors
    assert log(tmp_path)[-2:] == ["told", "requeue 40123"]
    assert "requeuing the job" in output


def test_canceled_job_is_not_requeued(cluster, tmp_path):
    """SLURM has a canceled job in the state COMPLETING while its processes end."""
    run = cluster(*ARGUMENTS, WAIT="1", SLURM_NNODES="1", STATE="COMPLETING")
    wait_for_tasks(tmp_path, 1)
    run.send_signal(signal.SIGTERM)
    output, _ = run.communicate()
    assert run.returncode == 75
    assert log(tmp_path)[-1] == "told"
    assert "saved; not requeuing" in output


@pytest.mark.parametrize("code", [1, 137, 143])
def test_failed_run_is_not_requeued(cluster, tmp_path, code):
    run = cluster(*ARGUMENTS, CODE=str(code), SLURM_NNODES="1")
    assert run.wait() == code
    assert not [line for line in log(tmp_path) if line.startswith("requeue")]


@pytest.mark.parametrize(
    ("arguments", "change", "named"),
    [
        (ARGUMENTS, {"SLURM_JOB_ID": None}, "SLURM_JOB_ID"),
        (ARGUMENTS, {"SLURM_JOB_NODELIST": None}, "SLURM_JOB_NODELIST"),
        (ARGUMENTS, {"SLURM_NNODES": None}, "SLURM_NNODES"),
        (ARGUMENTS, {SUBMIT: None}, SUBMIT),
        (ARGUMENTS, {"ALIBI_MODULES": "x"}, "ALIBI_MODULES"),
        (ARGUMENTS, {"ALIBI_CONDA_ENV": "x"}, "ALIBI_CONDA_ENV"),
        (["wikitext-103/alibi-512"], {}, "--save-dir"),
        (["wikitext/alibi-512", "data"], {}, "with a recipe such as"),
        (ARGUMENTS, {"SLURM_GPUS_PER_NODE": ""}, "--gpus-per-node"),
        (ARGUMENTS, {SUBMIT: "/"}, "Submit from the repository"),
        (ARGUMENTS, {"OUTDATED": "1"}, "scripts/install.sh"),
        ([*ARGUMENTS, "--reset-dataloader"], {}, "--reset-dataloader would apply again"),
        ([*ARGUMENTS, "--restore-file=a.pt"], {}, "--restore-file would apply again"),
    ],
)
def test_invalid_calls_are_rejected(cluster, tmp_path, arguments, change, named):
    run = cluster(*arguments, **change)
    assert run.wait() == 2
    assert named in run.stderr.read()
    assert log(tmp_path) == []
