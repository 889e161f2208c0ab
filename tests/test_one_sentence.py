"""Whatever is wrong with what a command is given: one sentence, exit code 2, and no traceback."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import PACKAGE, ROOT, SHORT, as_process

from alibi_fairseq import cli


def mostly_slow(cases, quick: int) -> list:
    """So many of the cases in every run of the tests, and all of them in a slow one."""
    slow = pytest.mark.slow
    return [
        case if number < quick else pytest.param(case, marks=slow)
        for number, case in enumerate(cases)
    ]


def evaluate(data, checkpoint, out) -> list:
    flags = ["--path", checkpoint, "--lengths", 16, "--device", "cpu", "--out", out]
    return ["eval", data, *flags]


def index(path) -> np.ndarray:
    return np.frombuffer(path.read_bytes(), np.uint8).copy()


def token_out_of_range(data):
    tokens = np.fromfile(data / "valid.bin", np.uint16)
    tokens[3] = 60_000
    tokens.tofile(data / "valid.bin")
    tokens = np.fromfile(data / "train.bin", np.uint16)
    tokens[:] = 60_000
    tokens.tofile(data / "train.bin")


def change(name, how):
    """Harm both splits, so that training notices it as evaluation does."""

    def harm(data):
        for path in data.glob(name):
            path.write_bytes(how(path.read_bytes()))

    return harm


DATA = {
    "an index that is cut off": (change("*.idx", lambda b: b[:40]), "is damaged (it is too short"),
    "no index": (change("*.idx", lambda b: b""), "cannot be read|is damaged|no split"),
    "half of the numbers": (change("*.bin", lambda b: b[: len(b) // 2]), "it leads to byte"),
    "an unknown type of numbers": (change("*.idx", lambda b: b[:17] + b"\x63" + b[18:]), "damaged"),
    "a version of the future": (change("*.idx", lambda b: b[:9] + b"\x07" + b[10:]), "version 7"),
    "a token out of range": (token_out_of_range, "word number"),
    "a dictionary without counts": (
        change("dict.txt", lambda b: b"".join(line.split()[0] + b"\n" for line in b.splitlines())),
        "dict.txt is not a dictionary",
    ),
    "a word twice": (change("dict.txt", lambda b: b + b.splitlines()[0]), "Duplicate word"),
    "latin-1": (
        change("dict.txt", lambda b: "n\u00e4 1\n".encode("latin-1") + b),
        "encoding|UTF-8",
    ),
    "a blank line": (change("dict.txt", lambda b: b"\n" + b), "dict.txt is not a dictionary"),
}


@pytest.mark.parametrize("harm", mostly_slow(DATA, 4))
def test_damaged_data(data_bin, checkpoint, tmp_path, refuse, harm):
    data = shutil.copytree(data_bin, tmp_path / "data")
    damage, expected = DATA[harm]
    damage(data)
    for command in (
        evaluate(data, checkpoint, tmp_path / "out.json"),
        ["train", data, *SHORT, "--save-dir", tmp_path / "run"],
    ):
        said = refuse(*command)
        assert any(part in said for part in expected.split("|")), said
    assert not (tmp_path / "out.json").exists()
    assert not (tmp_path / "run" / "checkpoint_last.pt").exists()


TRAINING = {
    "--max-tokens 8": "--max-tokens 8 is less than",
    "--dropout 2": "--dropout must be at least 0 and less than 1, not 2.0",
    "--attention-dropout -0.1": "--attention-dropout must be at least 0 and less than 1",
    "--adaptive-input --adaptive-input-cutoff 20,10": "takes increasing numbers of words",
    "--adaptive-input --adaptive-input-cutoff abc": "takes increasing numbers of words",
    "--decoder-layers-to-keep x": "--decoder-layers-to-keep",
    "--adaptive-input": "--adaptive-input needs --adaptive-input-cutoff",
    "--criterion adaptive_loss --adaptive-softmax-cutoff 0,9": "takes increasing numbers of words",
    "--adaptive-input --adaptive-input-cutoff 9 --adaptive-input-factor 0": "smaller factor",
    "--decoder-ffn-embed-dim 0": "--decoder-ffn-embed-dim must be at least 1",
}
#: fairseq would train nothing, or from random weights, and end with 0; hang; or die of a signal.
SILENT = {
    "--distributed-init-method nosuch": "--distributed-init-method",
    "--write-checkpoints-asynchronously": "without an update",
    "--finetune-from-model .": "--finetune-from-model",
    "--alibi-slopes /dev/zero": "--alibi-slopes",
    "--required-batch-size-multiple 0": "--required-batch-size-multiple",
}
#: Nobody checks these first: fairseq, NumPy or torch raise where they trip over them.
UNEXPECTED = (
    *("--adam-betas x", "--adam-betas (0.9)", "--lr =", "--criterion ctc", "--task masked_lm"),
    *("--log-file /nosuch/x", "--seed -1", "--update-freq 0", "--num-workers -1"),
    "--lr-scheduler inverse_sqrt --warmup-updates 0",
)


@pytest.mark.parametrize("flags", [*mostly_slow(TRAINING, 6), *SILENT])
def test_mistakes_in_options_of_a_training(data_bin, tmp_path, refuse, flags):
    said = refuse("train", data_bin, *SHORT, *flags.split(), "--save-dir", tmp_path / "run")
    assert {**TRAINING, **SILENT}[flags] in said
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("flags", UNEXPECTED)
def test_what_nobody_expected(data_bin, tmp_path, fail, capsys, monkeypatch, flags):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    code, said = fail("train", data_bin, *SHORT, *flags.split(), "--save-dir", tmp_path / "run")
    assert code in (1, 2) and "Traceback" not in capsys.readouterr().err
    if code == 1:
        kind, _, place = said.partition(": ")[0], *said.partition("its traceback is in ")[1:]
        assert kind in Path(place).read_text() and "Traceback" in Path(place).read_text()
    assert not list(tmp_path.rglob("*.pt")) and not list(tmp_path.rglob("*.lock"))


def test_a_training_that_is_complete_says_so(data_bin, checkpoint, tmp_path, capfd, caplog):
    shutil.copy(checkpoint, tmp_path)
    words = ["train", data_bin, *SHORT, "--save-dir", tmp_path]
    with caplog.at_level("INFO"):
        assert cli.main([str(word) for word in words]) == 0
    assert "nothing to train: this checkpoint has made all of its 3 updates" in caplog.text


@pytest.mark.parametrize("stream", ["stdout", "stderr", "stdin"])
def test_a_closed_standard_stream(stream):
    number = {"stdin": 0, "stdout": 1, "stderr": 2}[stream]
    program = f"import os, sys; os.close({number}); os.execv(sys.executable, "
    program += "[sys.executable, '-m', 'alibi_fairseq', 'models'])"
    done = as_process("-c", program)
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr


def test_no_batch_size_at_all(data_bin, tmp_path, refuse):
    flags = [word for word in SHORT if word not in ("--max-tokens", "128")]
    said = refuse("train", data_bin, *flags, "--save-dir", tmp_path / "run")
    assert "--max-tokens or --batch-size" in said


@pytest.mark.parametrize("value", ["inf", "nan", "0", "-1"])
def test_memory_without_bound(data_bin, checkpoint, tmp_path, refuse, value):
    said = refuse(*evaluate(data_bin, checkpoint, tmp_path / "out.json"), "--memory-gb", value)
    assert "--memory-gb" in said


@pytest.mark.parametrize("url", ["x", "ftp://a/b.zip", "http://", "https://[", "https://a.org/"])
def test_mirrors_that_are_no_addresses(tmp_path, refuse, url):
    words = ["prepare", "wikitext-103", "--mirror", url, "--out", tmp_path / "out"]
    assert "is not the address of a file" in refuse(*words)


def test_a_mirror_that_does_not_answer(tmp_path, refuse, monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    words = ["prepare", "wikitext-103", "--out", tmp_path / "out"]
    said = refuse(*words, "--mirror", "http://127.0.0.1:9/wikitext-103-v1.zip")
    assert "No mirror could be used (http://127.0.0.1:9/" in said


@pytest.mark.parametrize("place", ["a closed pipe", "/dev/full"])
def test_an_output_that_takes_nothing(place, monkeypatch, refuse):
    if place == "/dev/full":
        stream = os.fdopen(os.open(place, os.O_WRONLY), "w")
    else:
        reader, writer = os.pipe()
        os.close(reader)
        stream = os.fdopen(writer, "w")
    with stream, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        said = refuse("models")
    assert "The output was closed" in said or "The output cannot be used (No space" in said


def test_ctrl_c_while_everything_is_imported():
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-m", PACKAGE.name, "models"]
    run = subprocess.Popen(words, env=environment, stdout=-3, stderr=subprocess.PIPE)
    while "libtorch" not in Path(f"/proc/{run.pid}/maps").read_text():
        time.sleep(0.02)
    run.send_signal(2)
    said = run.communicate()[1].decode()
    assert run.returncode == 130 and "Traceback" not in said, said[-500:]


@pytest.mark.parametrize(
    "harm",
    [
        lambda state: {},
        lambda state: {**state, "model": None},
        lambda state: {**state, "model": {}},
        lambda state: {**state, "cfg": None, "args": None},
        lambda state: {**state, "cfg": {"model": 3}},
        lambda state: {**state, "model": {**state["model"], "extra": torch.ones(1)}},
        lambda state: {**state, "optimizer_history": [3]},
        lambda state: {**state, "optimizer_history": "x"},
        lambda state: {**state, "task_state": 3},
    ],
)
def test_checkpoints_with_missing_or_wrong_parts(data_bin, checkpoint, tmp_path, refuse, harm):
    state = torch.load(checkpoint, weights_only=True)
    torch.save(harm(state), tmp_path / "odd.pt")
    for words in (
        evaluate(data_bin, tmp_path / "odd.pt", tmp_path / "out.json"),
        [
            "import-checkpoint",
            tmp_path / "odd.pt",
            "--dict",
            data_bin / "dict.txt",
            "--out",
            tmp_path,
        ],
    ):
        assert refuse(*words)
    assert not (tmp_path / "out.json").exists()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("compair", "Did you mean 'compare'?"),
        ("models --quik", "models --help"),
        ("compare . --out x --methods alibi sinusoidal", "--methods alibi,sinusoidal"),
    ],
)
def test_slips_on_the_command_line(refuse, words, expected):
    assert expected in refuse(*words.split())
