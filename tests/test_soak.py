"""Long-running commands may be repeated: after random kills they leave what undisturbed ones leave, and
a command that is done changes no file.

SOAK_KILLS=25 pytest -m slow tests/test_soak.py
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import torch
from commands import ROOT
from torch.utils._pytree import tree_map_only

KILLS = int(os.environ.get("SOAK_KILLS", 2))
PATIENCE = 300  # seconds in which a command that was told to stop must end

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200 * (KILLS + 1))]

_TINY = (
    "--decoder-layers 1 --decoder-embed-dim 16 --decoder-ffn-embed-dim 32 --decoder-input-dim 16 "
    "--decoder-output-dim 16 --decoder-attention-heads 2 --tokens-per-sample 16 --update-freq 1 "
    "--warmup-updates 1 --lr 0.05 --lr-period-updates 1000 --save-interval-updates 20 "
    "--keep-interval-updates 1 --max-tokens 128 --max-update 60"
)
#: ``{out}`` is the folder that is compared in the end.
COMMANDS = {
    "prepare": "prepare text tales --out {out} --vocab-size 500",
    "train": f"launch --cpu 1 bookcorpus/alibi-512 data/data-bin --save-dir {{out}} {_TINY}",
    "train-two": f"launch --cpu 2 bookcorpus/alibi-512 data/data-bin --save-dir {{out}} {_TINY}",
    "eval": "eval data/data-bin --path model/checkpoint_last.pt --lengths 16,32 --strides full,8 "
    "--out {out}/results.json",
    "report": "report model.json --out {out}",
    "export": "export --path model/checkpoint_last.pt --data data/data-bin --out {out}",
    "compare": "compare tales --train-lengths 16,32 --eval-lengths 16,64 --updates 40 "
    "--tokens-per-update 256 --vocab-size 500 --parallel 2 --out {out}",
    "study": "study study.yaml --corpus tales=tales --work-dir {out}/work "
    "--results {out}/results --parallel 2",
    "reproduce": "reproduce table15 --scale smoke --cpu 1 --allow-other-text "
    "--corpus wikitext-103=wikitext --out {out}",
}
STUDY = """
title: Interrupted
corpora: [{name: tales, vocabulary: 500, excerpt: {train: 9000, documents: 3, tokens: 200}}]
training: {updates: 40, tokens_per_update: 256, lr: [0.002, 0.004]}
evaluation: {eval_lengths: [1x, 2x], sliding: {1: [32]}, subset: test, per_document: empty-lines,
  score_from: 100, score_to: 110}
parts: [{methods: [alibi, rotary], train_lengths: [16]}]
"""
#: Exit codes after a signal; 75: saved and stopped, 130: Ctrl-C before there was anything to save.
CODES = {signal.SIGKILL: {-9}, signal.SIGTERM: {-15, 75}, signal.SIGINT: {-2, 130, 75}}
#: Suffixes of files whose bytes are compared.
BYTES = {".bin", ".idx", ".txt", ".model", ".vocab", ".safetensors", ".md"}
#: What differs between two runs that are the same.
TIMES = {
    *("seconds", "tokens_per_second", "tokens_per_second_batch_1", "peak_memory_mb", "hours"),
    *("gpu_hours", "train_command", "checkpoint", "checkpoint_sha256"),
}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> Path:
    """A folder with texts, the description of a study, prepared data, and an evaluated model."""
    folder = tmp_path_factory.mktemp("inputs")
    script = [
        sys.executable,
        str(ROOT / "scripts" / "python_documentation.py"),
        str(folder / "all"),
    ]
    subprocess.run(script, check=True)
    lines = (folder / "all").read_text().splitlines()[:6000]
    (folder / "study.yaml").write_text(STUDY)
    for name in ("tales", "wikitext"):
        (folder / name).mkdir()
    for number in range(20):
        (folder / "tales" / f"{number}.txt").write_text("\n".join(lines[number::20]))
    for split, part in (("train", lines[600:]), ("valid", lines[:300]), ("test", lines[300:600])):
        text = " \n = Title = \n" + "".join(f" {line} \n" for line in part)
        (folder / "wikitext" / f"wiki.{split}.tokens").write_text(text)
    assert run("prepare", folder / "data")
    assert run("train", folder / "model")
    assert run("eval", folder / "evaluation")
    (folder / "evaluation" / "results.json").rename(folder / "model.json")
    return folder


def run(
    name: str,
    out: Path,
    moment: tuple[float, signal.Signals, bool] | None = None,
    allowed: frozenset[int] = frozenset({0}),
) -> bool:
    """Start a command and wait for its end; returns whether it came to it.

    Args:
        moment: after how many seconds to send which signal, and whether to all of its processes.
        allowed: exit codes without a signal.
    """
    log = out.with_suffix(".log")
    process = psutil.Popen(
        [sys.executable, "-m", "alibi_fairseq", *COMMANDS[name].format(out=out).split()],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        cwd=out.parent,
        stdout=log.open("w"),
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        code = process.wait(moment and moment[0])
    except psutil.TimeoutExpired:
        _, number, everyone = moment
        children, allowed = process.children(recursive=True), frozenset(CODES[number] | {0})
        (os.killpg if everyone else os.kill)(process.pid, number)
        code = process.wait(PATIENCE)
        assert not psutil.wait_procs(children, PATIENCE)[1], "its processes outlived it"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert code in allowed, log.read_text()[-3000:]
    return code == 0


def state(folder: Path) -> dict:
    """Weights, optimiser and place in the data of every training, and every number measured."""
    found = {}
    for path in folder.rglob("checkpoint_last.pt"):
        whole = torch.load(path, weights_only=True)
        parts = [whole["model"], whole["last_optimizer_state"], whole["optimizer_history"][-1]]
        parts.append(whole["extra_state"]["train_iterator"])
        found[path] = tree_map_only(torch.Tensor, lambda t: (t.dtype, t.numpy().tobytes()), parts)
    for path in folder.rglob("*.json"):
        content = json.loads(path.read_text())
        if "cells" in content:
            cells = [{k: v for k, v in cell.items() if k not in TIMES} for cell in content["cells"]]
            found[path] = sorted(cells, key=str)
    for path in folder.rglob("*"):
        if path.suffix in BYTES:
            found[path] = path.read_bytes()
    return {path.relative_to(folder).as_posix(): part for path, part in found.items()}


def files_of(folder: Path) -> dict:
    """Contents of all files but logs, and the modification times of checkpoints and data."""
    files = {}
    for path in folder.rglob("*"):
        if path.is_file() and path.suffix != ".log":
            written = path.stat().st_mtime_ns if path.suffix in {".pt", *BYTES} else None
            files[path.relative_to(folder).as_posix()] = written, path.read_bytes()
    return files


#: Exit codes of commands that reject a folder that is not empty.
REJECTED = {"export": 2}


@pytest.mark.parametrize("name", COMMANDS)
def test_second_run_changes_no_file(name, inputs):
    out = inputs / f"{name}-twice"
    assert run(name, out)
    before = files_of(out)
    assert before
    run(name, out, allowed=frozenset({REJECTED.get(name, 0)}))
    after = files_of(out)
    assert before.keys() == after.keys()
    assert [path for path in before if before[path] != after[path]] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_killed_and_given_again(name, inputs):
    start = time.monotonic()
    assert run(name, inputs / f"{name}-whole")
    seconds, expected = time.monotonic() - start, state(inputs / f"{name}-whole")
    chance, kills = random.Random(name), 0
    while kills < KILLS:
        out, done = inputs / f"{name}-{kills}", False
        while kills < KILLS and not done:
            number, everyone = chance.choice(list(CODES)), chance.random() < 0.5
            done = run(name, out, (chance.uniform(0, seconds), number, everyone))
            kills += not done
        assert run(name, out)
        assert state(out) == expected
