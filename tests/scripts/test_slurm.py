"""The batch scripts' bodies, run by bash under stand-ins for SLURM's commands."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TRAIN = ROOT / "scripts" / "slurm" / "train.sbatch"
REPRODUCE = ROOT / "scripts" / "slurm" / "reproduce.sbatch"

FAKE = {
    "scontrol": """
        if [ "$1" = show ]; then printf '%s\\n' gpu07 gpu08; else echo "$@" >> "$LOG"; fi
        """,
    # As srun does: options first, then the task, to which it passes signals on.
    "srun": """
        while [[ "$1" == --* ]]; do echo "srun $1" >> "$LOG"; shift; done
        exec "$@"
        """,
}
# Stands for scripts/train.sh and scripts/reproduce.sh: ends with $CODE, with 75 when told to stop.
TASK = """
    echo "task $*" >> "$LOG"
    trap 'echo told >> "$LOG"; exit 75' USR1
    if [ "${WAIT:-0}" -eq 1 ]; then touch "$LOG.waiting"; for _ in {1..500}; do sleep 0.02; done; fi
    exit "${CODE:-0}"
    """
JOB = {
    "SLURM_JOB_ID": "40123",
    "SLURM_JOB_NODELIST": "gpu[07-08]",
    "SLURM_NNODES": "2",
    "SLURM_GPUS_PER_NODE": "a100:8",
}


@pytest.fixture
def cluster(tmp_path):
    """A repository with stand-ins, and how to run a batch script in it."""
    executables = {f"bin/{name}": body for name, body in FAKE.items()}
    executables |= {"scripts/train.sh": TASK, "scripts/reproduce.sh": TASK}
    for name, body in executables.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("#!/usr/bin/env bash\n" + body)
        path.chmod(0o755)

    (tmp_path / "scripts" / "slurm").symlink_to(ROOT / "scripts" / "slurm")

    def start(script, *arguments, without=(), **more):
        variables = {**os.environ, **JOB, "SLURM_SUBMIT_DIR": str(tmp_path), **more}
        variables["PATH"] = f"{tmp_path / 'bin'}:{variables['PATH']}"
        variables["LOG"] = str(tmp_path / "log")
        for name in without:
            del variables[name]
        return subprocess.Popen(
            ["bash", script, *arguments],
            env=variables,
            cwd="/",
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


def log(tmp_path):
    path = tmp_path / "log"
    return path.read_text().splitlines() if path.exists() else []


ARGUMENTS = ("wikitext-103/alibi-512", "data", "--save-dir", "run")


def test_every_node_gets_one_launcher_with_all_it_needs(cluster, tmp_path):
    run = cluster(TRAIN, *ARGUMENTS)
    assert run.wait() == 0, run.stderr.read()
    assert log(tmp_path) == [
        "srun --ntasks=2",
        "srun --ntasks-per-node=1",
        "srun --kill-on-bad-exit=1",
        "task --nnodes 2 --gpus 16 --rdzv-endpoint gpu07:20123 --rdzv-id 40123 "
        + " ".join(ARGUMENTS),
    ]


def test_the_launcher_takes_what_the_script_gives(cluster, tmp_path):
    """The words that the stand-in was given, to the real launcher."""
    run = cluster(TRAIN, *ARGUMENTS)
    assert run.wait() == 0, run.stderr.read()
    from alibi_fairseq.cli import main

    words = log(tmp_path)[-1].split()[1:]
    words[words.index("data")] = str(tmp_path)
    (tmp_path / "dict.txt").touch()
    assert main(["launch", "--dry-run", *words]) == 0


def test_reproduce_takes_what_the_script_gives(cluster, tmp_path):
    text = tmp_path / "text.txt"
    text.touch()
    given = ("table8", "--corpus", f"bookcorpus={text}", "--scale", "mini")
    run = cluster(REPRODUCE, *given, SLURM_NNODES="1")
    assert run.wait() == 0, run.stderr.read()
    from alibi_fairseq.cli import main

    words = log(tmp_path)[-1].split()[1:]
    assert main(["reproduce", "--dry-run", *words]) == 0


HOOKS = {
    "ALIBI_MODULES": "cuda/12.4 gcc",
    "ALIBI_CONDA_ENV": "mine",
    "ALIBI_CONTAINER": "box --nv image.sif",
}


@pytest.mark.parametrize("script", [TRAIN, REPRODUCE])
def test_modules_conda_and_a_container_by_one_variable_each(cluster, tmp_path, script):
    for name, body in {
        "module": 'echo "module $*" >> "$LOG"',
        "conda": f"echo {tmp_path / 'conda'}",
        "box": 'echo "box $1 $2" >> "$LOG"; shift 2; exec "$@"',
    }.items():
        path = tmp_path / "bin" / name
        path.write_text(f"#!/usr/bin/env bash\n{body}\n")
        path.chmod(0o755)
    profile = tmp_path / "conda" / "etc" / "profile.d" / "conda.sh"
    profile.parent.mkdir(parents=True)
    # As conda's own does, it reads a variable that is not set.
    profile.write_text('conda() { echo "conda $*$UNSET_BY_ANYBODY" >> "$LOG"; }\n')
    run = cluster(script, *ARGUMENTS, SLURM_NNODES="1", **HOOKS)
    assert run.wait() == 0, run.stderr.read()
    lines = log(tmp_path)
    assert lines[:2] == ["module load cuda/12.4 gcc", "conda activate mine"]
    assert lines[-2] == "box --nv image.sif" and lines[-1].startswith("task ")


@pytest.mark.parametrize("name", ["ALIBI_MODULES", "ALIBI_CONDA_ENV"])
def test_a_hook_without_its_command_is_said(cluster, tmp_path, name):
    run = cluster(TRAIN, *ARGUMENTS, **{name: "anything"})
    assert run.wait() == 2
    assert f"train.sbatch: error: {name} is set, but there is no " in run.stderr.read()
    assert log(tmp_path) == []


@pytest.mark.parametrize("script", [TRAIN, REPRODUCE])
def test_a_warning_reaches_the_run_and_the_job_is_requeued(cluster, tmp_path, script):
    run = cluster(script, *ARGUMENTS, WAIT="1", SLURM_NNODES="1")
    while not (tmp_path / "log.waiting").exists():
        time.sleep(0.01)
    run.send_signal(signal.SIGUSR1)
    output, errors = run.communicate()
    assert run.returncode == 0, errors
    assert log(tmp_path)[-2:] == ["told", "requeue 40123"]
    assert "putting the job back into the queue" in output


@pytest.mark.parametrize("script", [TRAIN, REPRODUCE])
@pytest.mark.parametrize("code", ["1", "2"])
def test_a_failed_run_is_not_requeued(cluster, tmp_path, script, code):
    run = cluster(script, *ARGUMENTS, CODE=code, SLURM_NNODES="1")
    assert run.wait() == int(code)
    assert not [line for line in log(tmp_path) if line.startswith("requeue")]


@pytest.mark.parametrize(
    ("script", "name"),
    [
        *((TRAIN, name) for name in (*JOB, "SLURM_SUBMIT_DIR") if name != "SLURM_GPUS_PER_NODE"),
        (REPRODUCE, "SLURM_JOB_ID"),
        (REPRODUCE, "SLURM_SUBMIT_DIR"),
    ],
)
def test_outside_of_a_job_it_says_so(cluster, tmp_path, script, name):
    run = cluster(script, *ARGUMENTS, without=[name])
    assert run.wait() == 2
    assert f"{name} is not set; submit this file with sbatch." in run.stderr.read()
    assert log(tmp_path) == []


@pytest.mark.parametrize(
    ("script", "arguments", "change", "sentence"),
    [
        (TRAIN, ["wikitext-103/alibi-512"], {}, "name a recipe and its data"),
        (TRAIN, ARGUMENTS, {"SLURM_GPUS_PER_NODE": ""}, "the job has no GPUs"),
        (TRAIN, ARGUMENTS, {"SLURM_SUBMIT_DIR": "/"}, "submit from the repository"),
        (REPRODUCE, ["table5"], {"SLURM_NNODES": "2"}, "--nodes=1"),
    ],
)
def test_other_mistakes(cluster, tmp_path, script, arguments, change, sentence):
    run = cluster(script, *arguments, **change)
    assert run.wait() == 2
    assert sentence in run.stderr.read()
