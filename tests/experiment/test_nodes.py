"""Trainings on two nodes, which are two processes of this machine."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import threading
import time

import pytest
from fairseq_runs import write_corpus
from fakes import TINY

from alibi_fairseq.cli import main
from alibi_fairseq.experiment import nodes, torchrun
from alibi_fairseq.experiment.child_process import ALIBI
from alibi_fairseq.experiment.run import Run
from alibi_fairseq.experiment.stopping import Stopped

#: Like srun: starts the command on two nodes, and passes SIGUSR1 on to both.
LAUNCHER = """
import signal, subprocess, sys
nodes = [subprocess.Popen(sys.argv[1:]) for _ in range(2)]
def forward(number, frame):
    for node in nodes:
        node.send_signal(number)
signal.signal(signal.SIGUSR1, forward)
sys.exit(max(node.wait() for node in nodes))
"""


@pytest.mark.slow
def test_training_on_two_nodes_stops_and_resumes(tmp_path, monkeypatch):
    data = write_corpus(tmp_path / "data", train=2000, valid=200)
    script = tmp_path / "launcher.py"
    script.write_text(LAUNCHER)
    monkeypatch.setenv(nodes.NODE_LAUNCHER, shlex.join([sys.executable, str(script)]))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr("socket.gethostname", lambda: "localhost")
    endpoint = nodes.rendezvous_endpoint("two")
    flags = (
        "--task language_modeling --arch alibi_lm --position-method alibi --tokens-per-sample 16"
    )
    flags += " --max-tokens 64 --optimizer adam --lr 0.01 --cpu --distributed-world-size 2"
    flags += f" --ddp-backend legacy_ddp --max-update 400 {TINY}"
    run = Run(
        name="two",
        folder=tmp_path / "run",
        data=str(data),
        flags=tuple(flags.split()),
        request={},
        updates=400,
        tokens=400 * 128,
        program=nodes.program(torchrun.launcher_flags(2, nodes=2, endpoint=endpoint), nodes=2),
    )
    log = run.folder / "train.log"

    def stop_after_first_update():
        while not log.is_file() or "epoch 001 | loss" not in log.read_text():
            time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGUSR1)

    threading.Thread(target=stop_after_first_update, daemon=True).start()
    with pytest.raises(Stopped):
        run.train()
    stopped_at = run.saved_updates()
    assert 0 < stopped_at < 400
    text = log.read_text()
    assert text.count("launcher: SIGUSR1: saving") == 2  # one of each node
    run.train()
    assert run.saved_updates() == 400
    assert f"@ {stopped_at} updates" in log.read_text()
    assert "'distributed_world_size': 2" in text


def test_other_nodes_must_be_reachable(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.delenv(nodes.NODE_LAUNCHER, raising=False)
    words = ["reproduce", "table11", "--cpu", "2", "--out", str(tmp_path / "out")]
    corpus = ["--corpus", f"cc100-roberta={tmp_path}"]
    assert main([*words, *corpus, "--nodes", "2"]) == 2
    assert nodes.NODE_LAUNCHER in capsys.readouterr().err
    assert main([*words, "--nodes", "3", "--dry-run"]) == 2
    assert "2 processes cannot be divided evenly among 3 nodes" in capsys.readouterr().err


def test_runs_of_a_job_meet_on_its_first_node(monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "40123")
    monkeypatch.setenv("SLURMD_NODENAME", "gpu07")
    first = nodes.rendezvous_endpoint("a")
    assert first == nodes.rendezvous_endpoint("a")
    assert first != nodes.rendezvous_endpoint("b")
    host, port = first.split(":")
    assert host == "gpu07"
    assert 20_000 <= int(port) < 32_000


def test_containers_are_entered_on_each_node(monkeypatch):
    assert nodes.program([], nodes=1) == ALIBI
    container = ("apptainer", "exec", "--nv", "alibi.sif")
    monkeypatch.setenv(nodes.CONTAINER, shlex.join(container))
    program = nodes.program([], nodes=4)
    assert program[0] == "srun"
    start = program.index("apptainer")
    assert program[start : start + 5] == (*container, sys.executable)
