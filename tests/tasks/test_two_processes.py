"""Two processes on the CPU, each with a separate part of the text and a separate memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from fairseq_runs import write_corpus

ROOT = Path(__file__).resolve().parents[2]

#: Runs of one of the two processes: uninterrupted, in two parts, without validation, and stopped by
#: a signal to the first process.
PROGRAM = """
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from fairseq.trainer import Trainer
from fairseq_runs import run_train

folder = Path(sys.argv[1])
rank = sys.argv[2]
flags = (
    "--task segment_language_modeling --tokens-per-sample 8 --batch-size 2 "
    "--position-method transformer_xl --mem-len 12 --distributed-world-size 2 "
    f"--distributed-rank {rank} --distributed-init-method file://{folder}/meeting "
    "--distributed-backend gloo --ddp-backend legacy_ddp --distributed-no-spawn --max-update"
).split()
run_train(folder, folder / "whole", *flags, "17")
run_train(folder, folder / "parts", *flags, "6")
run_train(folder, folder / "parts", *flags, "17")
run_train(folder, folder / "unvalidated", *flags, "6", "--disable-validation")

prepare_sample = Trainer._prepare_sample

def stop_after_update_4(trainer, *arguments):
    if rank == "0" and trainer.get_num_updates() == 3:
        os.kill(os.getpid(), signal.SIGTERM)
    return prepare_sample(trainer, *arguments)

Trainer._prepare_sample = stop_after_update_4
with suppress(SystemExit):
    run_train(folder, folder / "stopped", *flags, "17")
Trainer._prepare_sample = prepare_sample
run_train(folder, folder / "stopped", *flags, "17")
"""


def run_both(folder: Path) -> None:
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    processes = []
    for rank in range(2):
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(folder), str(rank)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        processes.append(process)
    try:
        outputs = [process.communicate(timeout=300)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0], "\n".join(outputs)[-4000:]
    assert "saving after update 4" in outputs[0]


def load_state(folder: Path) -> dict:
    return torch.load(folder / "checkpoint_last.pt", weights_only=True)


def memory_of(state: dict) -> dict:
    return state["extra_state"]["train_iterator"]["memory"]


@pytest.mark.slow
def test_two_processes_resume_to_same_result(tmp_path):
    torch.manual_seed(1)
    # 317 tokens in 4 rows of 79 or 80 tokens, 10 segments. The second epoch ends after update 20.
    run_both(write_corpus(tmp_path, train=317, valid=101))
    whole = load_state(tmp_path / "whole")
    parts = load_state(tmp_path / "parts")
    stopped = load_state(tmp_path / "stopped")
    for name, parameter in whole["model"].items():
        assert torch.equal(parameter, parts["model"][name]), name
        assert torch.equal(parameter, stopped["model"][name]), name

    memory = memory_of(whole)
    resumed_memory = memory_of(parts)
    assert memory["segment"] == 6
    assert resumed_memory["segment"] == 6
    assert sorted(memory["states"]) == [0, 1]
    assert sorted(resumed_memory["states"]) == [0, 1]
    for layer in range(2):
        first = memory["states"][0][layer]
        second = memory["states"][1][layer]
        assert first.shape == (12, 2, 16)
        assert second.shape == (12, 2, 16)
        assert not torch.equal(first, second)
        assert torch.equal(first, resumed_memory["states"][0][layer])
        assert torch.equal(second, resumed_memory["states"][1][layer])

    unvalidated_memory = memory_of(load_state(tmp_path / "unvalidated"))
    assert unvalidated_memory["segment"] == 5
    assert sorted(unvalidated_memory["states"]) == [0, 1]
