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
from fairseq.data import Dictionary, indexed_dataset

from alibi_fairseq import cli
from alibi_fairseq.errors import BadInput


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


#: What harms a data folder, and the file that is to be named.
DATA = {
    "an index that is cut off": (change("*.idx", lambda b: b[:40]), ".idx"),
    "a dictionary without counts": (
        change("dict.txt", lambda b: b"".join(line.split()[0] + b"\n" for line in b.splitlines())),
        "dict.txt",
    ),
    "half of the numbers": (change("*.bin", lambda b: b[: len(b) // 2]), ".bin"),
    "a token out of range": (token_out_of_range, "dict"),
    "no index": (change("*.idx", lambda b: b""), ""),
    "an unknown type of numbers": (change("*.idx", lambda b: b[:17] + b"\x63" + b[18:]), ".idx"),
    "floats": (change("*.idx", lambda b: b[:17] + b"\x06" + b[18:]), ".idx"),
    "a version of the future": (change("*.idx", lambda b: b[:9] + b"\x07" + b[10:]), ".idx"),
    "a word twice": (change("dict.txt", lambda b: b + b.splitlines()[0]), "dict.txt"),
    "latin-1": (change("dict.txt", lambda b: "n\u00e4 1\n".encode("latin-1") + b), "dict.txt"),
    "a blank line": (change("dict.txt", lambda b: b"\n" + b), "dict.txt"),
}


@pytest.mark.parametrize("harm", mostly_slow(DATA, 4))
def test_damaged_data(data_bin, checkpoint, tmp_path, refuse, harm):
    data = shutil.copytree(data_bin, tmp_path / "data")
    damage, named = DATA[harm]
    damage(data)
    for command in (
        evaluate(data, checkpoint, tmp_path / "out.json"),
        ["train", data, *SHORT, "--save-dir", tmp_path / "run"],
    ):
        assert named in refuse(*command)
    assert not (tmp_path / "out.json").exists()
    assert not (tmp_path / "run" / "checkpoint_last.pt").exists()


@pytest.mark.parametrize("length", [-1, 10**6])
def test_an_index_of_the_older_format_that_leads_outside(tmp_path, length):
    """It would be read beyond the end of the numbers without a word."""
    builder = indexed_dataset.make_builder(str(tmp_path / "valid.bin"), "cached")
    for size in (3, 4):
        builder.add_item(torch.arange(size))
    builder.finalize(str(tmp_path / "valid.idx"))
    prefix = str(tmp_path / "valid")
    assert indexed_dataset.make_dataset(prefix, "cached").sizes.tolist() == [3, 4]
    written = np.fromfile(f"{prefix}.idx", np.int64)
    written[-4] += length  # the end of the last line
    written[-1] += length  # its size
    written.tofile(f"{prefix}.idx")
    with pytest.raises(BadInput, match="valid.idx"):
        indexed_dataset.make_dataset(prefix, "cached")
    written[:-1].tofile(f"{prefix}.idx")
    with pytest.raises(BadInput, match="cut off"):
        indexed_dataset.make_dataset(prefix, "cached")


#: Options of a training, each with what the sentence names.
TRAINING = {
    "--dropout 2": "--dropout",
    "--decoder-attention-heads 5": "5 attention heads",
    "--restore-file CHECKPOINT --decoder-embed-dim 64": "embed_tokens",
    "--restore-file CHECKPOINT --decoder-layers 2": "layers.1",
    "--adaptive-input --adaptive-input-cutoff 20,10": "--adaptive-input-cutoff",
    "--adaptive-input --adaptive-input-cutoff 1000": "--adaptive-input-cutoff",
    # fairseq would train nothing and end with 0, hang, or die of a signal.
    "--distributed-init-method nosuch": "--distributed-init-method",
    "--write-checkpoints-asynchronously": "without an update",
    "--alibi-slopes /dev/zero": "--alibi-slopes",
    "--required-batch-size-multiple 0": "--required-batch-size-multiple",
    "--adaptive-input": "--adaptive-input-cutoff",
    "--adaptive-input --adaptive-input-cutoff abc": "--adaptive-input-cutoff",
    "--adaptive-input --adaptive-input-cutoff 9 --adaptive-input-factor 0": "smaller factor",
    "--criterion adaptive_loss --adaptive-softmax-cutoff 0,9": "--adaptive-softmax-cutoff",
    "--decoder-layers-to-keep x": "--decoder-layers-to-keep",
    "--decoder-ffn-embed-dim 0": "--decoder-ffn-embed-dim",
}


@pytest.mark.parametrize("flags", mostly_slow(TRAINING, 10))
def test_options_of_a_training(data_bin, checkpoint, tmp_path, refuse, flags):
    words = [checkpoint if word == "CHECKPOINT" else word for word in flags.split()]
    run = tmp_path / "run"
    assert TRAINING[flags] in refuse("train", data_bin, *SHORT, *words, "--save-dir", run)
    assert not run.exists()


def test_the_default_task_is_another(data_bin, refuse):
    said = refuse("train", data_bin, "--arch", "alibi_lm_tiny", "--max-tokens", 64)
    assert "--task language_modeling" in said


@pytest.mark.parametrize(
    ("path", "flags", "named"),
    [
        ("none.pt", "", "none.pt"),
        ("5.pt", "", "5.pt"),
        ("5000.pt", "", "5000.pt"),
        ("weights.pt", "", "weights.pt"),
        ("strange.pt", "", "of_a_stranger"),
        ("checkpoint.pt", "--gen-subset dev", "dev"),
        ("checkpoint.pt", "--tokens-per-sample 16 --max-tokens 8", "--max-tokens"),
    ],
)
def test_checkpoints_of_an_evaluation(data_bin, checkpoint, tmp_path, refuse, path, flags, named):
    content = checkpoint.read_bytes()
    (tmp_path / "checkpoint.pt").write_bytes(content)
    for size in (5, 5000):
        (tmp_path / f"{size}.pt").write_bytes(content[:size])
    torch.save({"weights": torch.ones(1)}, tmp_path / "weights.pt")
    state = torch.load(checkpoint)
    state["cfg"]["model"]["_name"] = "of_a_stranger"
    torch.save(state, tmp_path / "strange.pt")
    words = ["--path", tmp_path / path, "--cpu", *flags.split()]
    assert named in refuse("eval-lm", data_bin, *words)


def test_data_that_is_not_there(tmp_path, refuse):
    flags = [*SHORT, "--save-dir", tmp_path / "out"]
    assert "nowhere" in refuse("train", tmp_path / "nowhere", *flags)
    assert "dict.txt" in refuse("train", tmp_path, *flags)


def test_a_dictionary_of_another_size(data_bin, checkpoint, tmp_path, refuse):
    dictionary = Dictionary.load(str(data_bin / "dict.txt"))
    dictionary.add_symbol("more")
    dictionary.save(str(tmp_path / "dict.txt"))
    assert "dictionary" in refuse("eval-lm", tmp_path, "--path", checkpoint, "--cpu")
    # Checkpoints of others do not remember their dictionary; there the shapes tell.
    state = torch.load(checkpoint)
    state.pop("task_state")
    torch.save(state, tmp_path / "other.pt")
    said = refuse("eval-lm", tmp_path, "--path", tmp_path / "other.pt", "--cpu")
    assert "dictionary" in said and "embed_tokens" in said


#: Nobody checks these first: fairseq, NumPy or torch raise where they trip over them.
UNEXPECTED = (
    *("--adam-betas x", "--adam-betas (0.9)", "--lr =", "--criterion ctc", "--task masked_lm"),
    *("--log-file /nosuch/x", "--seed -1", "--update-freq 0", "--num-workers -1"),
    "--lr-scheduler inverse_sqrt --warmup-updates 0",
)


@pytest.mark.parametrize("flags", mostly_slow(UNEXPECTED, 4))
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


@pytest.mark.parametrize("value", ["inf", "0"])
def test_memory_without_bound(data_bin, checkpoint, tmp_path, refuse, value):
    said = refuse(*evaluate(data_bin, checkpoint, tmp_path / "out.json"), "--memory-gb", value)
    assert "--memory-gb" in said


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
        lambda state: {**state, "cfg": None, "args": None},
        lambda state: {**state, "cfg": {"model": 3}},
        lambda state: {**state, "model": {**state["model"], "extra": torch.ones(1)}},
        lambda state: {**state, "optimizer_history": [3]},
        lambda state: {**state, "task_state": 3},
    ],
)
def test_checkpoints_with_missing_or_wrong_parts(data_bin, checkpoint, tmp_path, refuse, harm):
    state = torch.load(checkpoint, weights_only=True)
    torch.save(harm(state), tmp_path / "odd.pt")
    out = ["--out", tmp_path]
    for words in (
        evaluate(data_bin, tmp_path / "odd.pt", tmp_path / "out.json"),
        ["import-checkpoint", tmp_path / "odd.pt", "--dict", data_bin / "dict.txt", *out],
    ):
        assert refuse(*words)
    assert not (tmp_path / "out.json").exists()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("compair", "Did you mean 'compare'?"),
        ("compare . --out x --methods alibi sinusoidal", "--methods alibi,sinusoidal"),
        ("prepare wikitext-103 --out x --mirror https://[", "https://["),
    ],
)
def test_slips_on_the_command_line(refuse, words, expected):
    assert expected in refuse(*words.split())
