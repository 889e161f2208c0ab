"""Two processes on the CPU, each with its own stretch of the text and its own memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from fairseq_runs import write_corpus

ROOT = Path(__file__).resolve().parents[2]

#: Every run of one of the two processes: uninterrupted, in two parts, and without validation.
PROGRAM = """
import sys
from pathlib import Path
from fairseq_runs import run_train

folder, rank = Path(sys.argv[1]), sys.argv[2]
flags = (
    "--task segment_language_modeling --tokens-per-sample 8 --batch-size 2 "
    "--position-method transformer_xl --mem-len 12 --distributed-world-size 2 "
    f"--distributed-rank {rank} --distributed-init-method file://{folder}/meeting "
    "--distributed-backend gloo --ddp-backend legacy_ddp --distributed-no-spawn --max-update"
).split()
for name, *more in [
    ("whole", "17"),
    ("parts", "6"),
    ("parts", "17"),
    ("unseen", "6", "--disable-validation"),
]:
    run_train(folder, folder / name, *flags, *more)
"""


def run_both(folder: Path) -> None:
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(folder), str(rank)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        outputs = [process.communicate(timeout=300)[0] for process in running]
    finally:
        for process in running:
            process.kill()
    assert [process.returncode for process in running] == [0, 0], "\n".join(outputs)[-4000:]
    assert "starts with empty ones" in outputs[0]  # the run that never validated


@pytest.mark.slow
def test_two_processes_resume_to_the_same_result(tmp_path):
    torch.manual_seed(1)
    # 317 tokens in 4 rows: 79 or 80 each, 10 segments; 17 updates end inside the second epoch.
    run_both(write_corpus(tmp_path, train=317, valid=101))
    whole, parts, unseen = (
        torch.load(tmp_path / name / "checkpoint_last.pt", weights_only=True)
        for name in ("whole", "parts", "unseen")
    )
    for name, parameter in whole["model"].items():
        assert torch.equal(parameter, parts["model"][name]), name

    memories = [
        state["extra_state"]["train_iterator"]["memory"] for state in (whole, parts, unseen)
    ]
    assert [memory["segment"] for memory in memories] == [6, 6, 5]
    assert [sorted(memory["states"]) for memory in memories] == [[0, 1], [0, 1], [0]]
    first, second = memories[0]["states"].values()
    for layer in range(2):
        assert first[layer].shape == second[layer].shape == (12, 2, 16)
        assert not torch.equal(first[layer], second[layer])
        for process in range(2):
            states = [memory["states"][process][layer] for memory in memories[:2]]
            assert torch.equal(*states)
