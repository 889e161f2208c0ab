"""Ctrl-C, SIGTERM, SIGHUP, and SIGUSR1 save and exit with 75 under every command that trains.

``train.sh`` is tested in ``tests/experiment``.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
import torch
from commands import PACKAGE, ROOT, SHORT, YAML


def start(command, data, folder, **variables):
    """Start a training that does not end by itself."""
    save_dir = folder / "run"
    if command == "hydra-train":
        (folder / "small.yaml").write_text(YAML)
        words = ["alibi_fairseq", "hydra-train", "--config-dir", folder, "--config-name", "small"]
        words += [f"task.data={data}", f"checkpoint.save_dir={save_dir}"]
        words += ["optimization.max_update=100000", "common.log_interval=1"]
    else:
        words = ["alibi_fairseq", "train"] if command == "train" else ["fairseq_cli.train"]
        words += [data, *SHORT, "--user-dir", PACKAGE, "--save-dir", save_dir]
        words += ["--max-update", 100_000, "--log-interval", 1]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    with open(folder / f"log{variables.get('RANK', '')}", "w") as log:
        return subprocess.Popen(
            [sys.executable, "-u", "-m", *map(str, words)],
            cwd=folder,
            env={**environment, **{name: str(value) for name, value in variables.items()}},
            stdout=log,
            stderr=log,
        )


def wait_for_updates(log, run):
    while "num_updates" not in log.read_text():
        assert run.poll() is None, log.read_text()[-2000:]
        time.sleep(0.05)


CI_CASE = ("fairseq-train", signal.SIGUSR1)
CASES = []
for command in ("train", "hydra-train", "fairseq-train"):
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP):
        mark = pytest.mark.ci if (command, number) == CI_CASE else pytest.mark.slow
        CASES.append(pytest.param(command, number, marks=mark))


@pytest.mark.parametrize(("command", "number"), CASES)
def test_signal_to_one_process(data_bin, tmp_path, command, number):
    run = start(command, data_bin, tmp_path)
    wait_for_updates(tmp_path / "log", run)
    run.send_signal(number)
    assert run.wait(timeout=120) == 75, (tmp_path / "log").read_text()[-2000:]
    state = torch.load(tmp_path / "run" / "checkpoint_last.pt", weights_only=True)
    assert state["optimizer_history"][-1]["num_updates"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_to_one_of_two_processes(data_bin, tmp_path, port, number):
    """Start both processes like ``srun``, without torchrun."""
    job = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": 2}
    runs = [start("train", data_bin, tmp_path, RANK=rank, **job) for rank in range(2)]
    wait_for_updates(tmp_path / "log0", runs[0])
    runs[1].send_signal(number)
    codes = [run.wait(timeout=120) for run in runs]
    assert codes == [75, 75], (tmp_path / "log0").read_text()[-2000:]
    state = torch.load(tmp_path / "run" / "checkpoint_last.pt", weights_only=True)
    assert state["optimizer_history"][-1]["num_updates"] > 0
