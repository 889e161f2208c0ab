"""Long commands may be rerun, also after they were killed at any moment.

These tests take from minutes to hours and are slow tests. ``SOAK_KILLS`` sets the number of kills
per command::

    SOAK_KILLS=25 pytest -m slow tests/experiment/test_soak.py
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest
import torch
from commands import ROOT
from torch.utils._pytree import tree_map_only

KILLS = int(os.environ.get("SOAK_KILLS", 2))
STOP_TIMEOUT = 300  # seconds between a signal and the end of all processes

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200 * (KILLS + 1))]

TINY_MODEL = (
    "--decoder-layers 1 --decoder-embed-dim 16 --decoder-ffn-embed-dim 32 --decoder-input-dim 16 "
    "--decoder-output-dim 16 --decoder-attention-heads 2 --tokens-per-sample 16 --update-freq 1 "
    "--warmup-updates 1 --lr 0.05 --lr-period-updates 1000 --save-interval-updates 20 "
    "--keep-interval-updates 1 --max-tokens 128 --max-update 60"
)
RECIPE_OPTIONS = f"data/data-bin --save-dir {{out}} {TINY_MODEL}"
RECIPE = f"--recipe bookcorpus/alibi-512 {RECIPE_OPTIONS}"
PYTHON = f"{sys.executable} -m"

#: Commands by name. ``{out}`` is the output folder.
COMMANDS = {
    "prepare": f"{PYTHON} alibi_fairseq prepare text tales --out {{out}} --vocab-size 500",
    "train": f"{PYTHON} alibi_fairseq train {RECIPE} --cpu 1",
    "train-two": f"{PYTHON} alibi_fairseq train {RECIPE} --cpu 2 --max-restarts 1",
    "train-script": f"{ROOT}/configs/bookcorpus/train.sh alibi-512 {RECIPE_OPTIONS} --cpu 2",
    "eval": f"{PYTHON} alibi_fairseq eval data/data-bin --path model/checkpoint_last.pt "
    "--lengths 16,32 --strides full,8 --out {out}/results.json",
    "report": f"{PYTHON} alibi_fairseq report model.json --out {{out}}",
    "export": f"{PYTHON} alibi_fairseq export --path model/checkpoint_last.pt "
    "--data data/data-bin --out {out}",
    "compare": f"{PYTHON} alibi_fairseq compare tales --train-lengths 16,32 --lengths 16,64 "
    "--updates 40 --tokens-per-update 256 --vocab-size 500 --parallel 2 --out {out}",
    "study": f"{PYTHON} studies study.yaml --corpus tales=tales "
    "--work-dir {out}/work --results {out}/results --parallel 2",
    "reproduce": f"{PYTHON} alibi_fairseq reproduce table15 --scale smoke --cpu 1 "
    "--allow-other-text --corpus wikitext-103=wikitext --out {out}",
}
#: Exit code of a second run. `export` rejects a folder that is not empty.
SECOND_EXIT_CODES = {"export": 2}

STUDY = """
title: Interrupted
corpora: [{name: tales, excerpt: {train: 9000, documents: 3, tokens: 512}}]
shared_vocabulary: 500
training: {updates: 40, tokens_per_update: 256, lr: [0.002, 0.004]}
evaluation: {eval_lengths: [1x, 2x, 4x, 16x], subset: test, per_document: empty-lines,
  score_from: 256, score_to: 512, variants: {alibi: {limited: {attention_window: train_length}}}}
tests: {corpus: tales, train_length: 16}
models: [{methods: [alibi, rotary], train_lengths: [16], sliding: {2: [1x, 2x, 4x]}}]
"""
#: Exit codes after a signal. 75: saved and stopped; 130: Ctrl-C before there was anything to save.
SIGNAL_EXIT_CODES = {
    signal.SIGKILL: {-9, 137},
    signal.SIGTERM: {-15, 143, 75},
    signal.SIGINT: {-2, 130, 75},
}
#: Suffixes of files whose bytes are compared.
BYTES = {".bin", ".idx", ".txt", ".model", ".vocab", ".safetensors", ".md"}
#: Suffixes of files that a second run must not rewrite, even with the same bytes.
TIMED = {".pt", ".bin", ".idx", ".model", ".safetensors"}
#: Date and time. Reports print the duration in the same table row.
DATE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d")
#: Keys of results that differ between two runs of the same command.
VARYING_KEYS = {"cost", "series", "checkpoint", "checkpoint_sha256"}


class Interruption(NamedTuple):
    """A signal that is sent to a command.

    Attributes:
        seconds: time from the start of the command to the signal.
        signal: the signal.
        to_group: send it to all processes of the command instead of the first one.
    """

    seconds: float
    signal: signal.Signals
    to_group: bool


def run(name: str, out: Path, interruption: Interruption | None = None) -> int:
    """Run a command, interrupt it, and return its exit code after all its processes have ended."""
    log = out.with_suffix(".log")
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    with log.open("a") as output:
        process = psutil.Popen(
            COMMANDS[name].format(out=out).split(),
            env=environment,
            cwd=out.parent,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        if interruption is None:
            return process.wait()
        try:
            return process.wait(interruption.seconds)
        except psutil.TimeoutExpired:
            return interrupt(process, interruption)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def interrupt(process: psutil.Popen, interruption: Interruption) -> int:
    """Send a signal and return the exit code after all processes of the command have ended."""
    children = process.children(recursive=True)
    if interruption.to_group:
        os.killpg(process.pid, interruption.signal)
    else:
        os.kill(process.pid, interruption.signal)
    code = process.wait(STOP_TIMEOUT)
    _, alive = psutil.wait_procs(children, STOP_TIMEOUT)
    assert not alive, "some processes of the command did not end"
    return code


def log_of(out: Path) -> str:
    """Return the end of a command's output, for a failed assertion."""
    return out.with_suffix(".log").read_text()[-3000:]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> Path:
    """Create text, the configuration of a study, prepared data, and an evaluated model."""
    folder = tmp_path_factory.mktemp("inputs")
    script = ROOT / "scripts" / "python_documentation.py"
    subprocess.run([sys.executable, script, folder / "all"], check=True)
    lines = (folder / "all").read_text().splitlines()[:6000]
    (folder / "study.yaml").write_text(STUDY)
    (folder / "tales").mkdir()
    for number in range(20):
        (folder / "tales" / f"{number}.txt").write_text("\n".join(lines[number::20]))
    (folder / "wikitext").mkdir()
    splits = {"train": lines[600:], "valid": lines[:300], "test": lines[300:600]}
    for split, split_lines in splits.items():
        text = " \n = Title = \n" + "".join(f" {line} \n" for line in split_lines)
        (folder / "wikitext" / f"wiki.{split}.tokens").write_text(text)
    assert run("prepare", folder / "data") == 0, log_of(folder / "data")
    assert run("train", folder / "model") == 0, log_of(folder / "model")
    assert run("eval", folder / "evaluation") == 0, log_of(folder / "evaluation")
    (folder / "evaluation" / "results.json").rename(folder / "model.json")
    return folder


def training_state(checkpoint: Path) -> list:
    """Return weights, optimizer state, update count, and data position of a checkpoint."""
    checkpoint_state = torch.load(checkpoint, weights_only=True)
    parts = [
        checkpoint_state["model"],
        checkpoint_state["last_optimizer_state"],
        checkpoint_state["optimizer_history"][-1],
        checkpoint_state["extra_state"]["train_iterator"],
    ]
    return tree_map_only(torch.Tensor, lambda t: (t.dtype, t.numpy().tobytes()), parts)


def measured_values(content: dict) -> list[str]:
    """Return the results of a results file without times, in a fixed order."""
    results = []
    for result in content["results"]:
        values = {key: value for key, value in result.items() if key not in VARYING_KEYS}
        results.append(json.dumps(values, sort_keys=True))
    return sorted(results)


def comparable_output(folder: Path) -> dict:
    """Return the output that two runs of a command must share, by relative path."""
    output = {}
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if path.name == "checkpoint_last.pt":
            output[name] = training_state(path)
        elif path.suffix == ".json":
            content = json.loads(path.read_text())
            if "results" in content:
                output[name] = measured_values(content)
        elif path.suffix in BYTES:
            output[name] = path.read_bytes()
            if path.suffix == ".md":
                output[name] = comparable_markdown(path, folder.name)
    return output


def comparable_markdown(path: Path, folder_name: str) -> list[str]:
    """Return the lines of a page without dates, folder names, and the cost of training."""
    measured, _, _ = path.read_text().partition("\nCost of training, ")
    lines = measured.splitlines()
    undated = [line for line in lines if not DATE.search(line)]
    return [line.replace(folder_name, "OUT") for line in undated]


def files_of(folder: Path) -> dict:
    """Return the contents of all files except logs, and the times of checkpoints and data."""
    files = {}
    for path in folder.rglob("*"):
        if not path.is_file() or path.suffix == ".log":
            continue
        modified = None
        if path.suffix in TIMED:
            modified = path.stat().st_mtime_ns
        files[path.relative_to(folder).as_posix()] = (modified, path.read_bytes())
    return files


@pytest.mark.parametrize("name", COMMANDS)
def test_second_run_changes_no_file(name, inputs):
    out = inputs / f"{name}-twice"
    assert run(name, out) == 0, log_of(out)
    before = files_of(out)
    assert before
    assert run(name, out) == SECOND_EXIT_CODES.get(name, 0), log_of(out)
    after = files_of(out)
    assert before.keys() == after.keys()
    changed = [path for path in before if before[path] != after[path]]
    assert changed == []


@pytest.mark.parametrize("name", COMMANDS)
def test_killed_command_resumes_to_same_output(name, inputs):
    start = time.monotonic()
    undisturbed = inputs / f"{name}-undisturbed"
    assert run(name, undisturbed) == 0, log_of(undisturbed)
    duration = time.monotonic() - start
    expected = comparable_output(undisturbed)
    # A command that was killed after its last file has nothing left to do.
    finished_codes = {0, SECOND_EXIT_CODES.get(name, 0)}
    rng = random.Random(name)
    kills = 0
    repetition = 0
    while kills < KILLS:
        out = inputs / f"{name}-{repetition}"
        repetition += 1
        finished = False
        while kills < KILLS and not finished:
            interruption = Interruption(
                seconds=rng.uniform(0, duration),
                signal=rng.choice(list(SIGNAL_EXIT_CODES)),
                to_group=rng.random() < 0.5,
            )
            code = run(name, out, interruption)
            finished = code in finished_codes
            assert finished or code in SIGNAL_EXIT_CODES[interruption.signal], log_of(out)
            if not finished:
                kills += 1
        if not finished:
            assert run(name, out) in finished_codes, log_of(out)
        assert comparable_output(out) == expected
