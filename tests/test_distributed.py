"""Two processes on the CPU are one job, which can be resumed."""

from __future__ import annotations

import re
import socket

import pytest
import torch
from commands import PACKAGE, SHORT, as_process

from alibi_fairseq.results.schema import load_document


@pytest.fixture
def port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def torchrun(port, *command):
    launcher = ["-m", "torch.distributed.run", "--nproc_per_node", 2, "--master_port", port]
    return as_process(*launcher, "-m", *command)


def test_one_job_that_can_be_resumed(data_bin, tmp_path, port):
    command = ["fairseq_cli.train", data_bin, "--user-dir", PACKAGE, *SHORT]
    command += ["--save-dir", tmp_path, "--log-interval", 1]
    first = torchrun(port, *command)
    assert first.returncode == 0, first.stderr[-3000:]
    assert first.stdout.count("done training") == 1
    # Twice the sentences of one process (8 of 16 tokens) in each update.
    assert set(re.findall(r"num_updates=\d.*|bsz=(\d+)", first.stdout)) >= {"16"}

    more = torchrun(port, *command, "--max-update", 5)
    assert more.returncode == 0, more.stderr[-3000:]
    assert "Loaded checkpoint" in more.stdout and "@ 3 updates" in more.stdout
    state = torch.load(tmp_path / "checkpoint_last.pt")
    assert state["optimizer_history"][-1]["num_updates"] == 5
    cells = load_document(tmp_path / "training.json")["cells"]
    assert [(cell["updates"], cell["processes"]) for cell in cells] == [(3, 2), (5, 2)]
    # 128 tokens of each process in an update, but for the end of the text
    for cell in cells:
        assert 0 <= cell["updates"] * 2 * 128 - cell["trained_tokens"] < 16


def test_what_does_not_add_up_is_refused(data_bin, checkpoint, port):
    command = ["fairseq_cli.eval_lm", data_bin, "--user-dir", PACKAGE, "--path", checkpoint]
    failed = torchrun(port, *command, "--cpu")
    assert failed.returncode != 0
    assert "2 processes were started together, but fairseq-eval-lm does not add" in failed.stderr
