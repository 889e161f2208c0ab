"""Whatever is wrong with what a command is given: one sentence, exit code 2, and no traceback."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import PACKAGE, ROOT, SHORT
from results_documents import document, evaluation_cell

from alibi_fairseq import cli
from alibi_fairseq.errors import explain


@pytest.fixture(autouse=True)
def arguments_of_pytest_stay(monkeypatch):
    monkeypatch.setattr(sys, "argv", list(sys.argv))


@pytest.fixture
def refuse(capsys):
    """Runs a command that must fail, as its process would; returns the sentence."""

    def run(*arguments) -> str:
        capsys.readouterr()
        try:
            code = cli.main([str(word) for word in arguments])
        except Exception as error:  # what the hook of a process turns into a sentence
            sentence = explain(error)
            assert sentence, repr(error)
            return sentence
        assert code == 2
        return capsys.readouterr().err.strip().splitlines()[-1]

    return run


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
    "--seed -1": "--seed must be between 0 and",
    "--update-freq 0": "--update-freq must be at least 1",
    "--lr-scheduler inverse_sqrt --warmup-updates 0": "--warmup-updates must be at least 1",
    "--lr-scheduler inverse_sqrt --warmup-updates -5": "--warmup-updates must be at least 1",
    "--dropout 2": "--dropout must be at least 0 and less than 1, not 2.0",
    "--attention-dropout -0.1": "--attention-dropout must be at least 0 and less than 1",
    "--num-workers -1": "--num-workers must be at least 0",
    "--adaptive-input --adaptive-input-cutoff 20,10": "takes increasing numbers of words",
    "--adaptive-input --adaptive-input-cutoff abc": "takes increasing numbers of words",
    "--adaptive-input": "--adaptive-input needs --adaptive-input-cutoff",
    "--criterion adaptive_loss --adaptive-softmax-cutoff 0,9": "takes increasing numbers of words",
    "--adaptive-input --adaptive-input-cutoff 9 --adaptive-input-factor 0": "smaller factor",
    "--decoder-ffn-embed-dim 0": "--decoder-ffn-embed-dim must be at least 1",
}


@pytest.mark.parametrize("flags", mostly_slow(TRAINING, 6))
def test_mistakes_in_options_of_a_training(data_bin, tmp_path, refuse, flags):
    said = refuse("train", data_bin, *SHORT, *flags.split(), "--save-dir", tmp_path / "run")
    assert TRAINING[flags] in said
    assert not (tmp_path / "run").exists()


def test_no_batch_size_at_all(data_bin, tmp_path, refuse):
    flags = [word for word in SHORT if word not in ("--max-tokens", "128")]
    said = refuse("train", data_bin, *flags, "--save-dir", tmp_path / "run")
    assert said == "There is no batch size; give --max-tokens or --batch-size."


GOOD = document(evaluation_cell())


def without(*path):
    """The document without the key at the end of a path."""
    changed = json.loads(json.dumps(GOOD))
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    del inner[path[-1]]
    return json.dumps(changed)


def with_cell(**values):
    return json.dumps(document(evaluation_cell() | values))


RESULTS = {
    "a missing key": without("corpus"),
    "a missing key of a cell": without("cells", 0, "tokens"),
    "a huge number": with_cell(tokens=10**400),
    "a number for which Python has no digits": with_cell(tokens=5).replace(
        ": 5", ": " + "9" * 5000
    ),
    "deep nesting": '{"a":' * 3000,
    "half a surrogate pair": with_cell(model="\ud800"),
    "NaN": with_cell(seconds=float("nan")),
    "overrides that are no JSON": with_cell(model_overrides="{'a': 1}"),
    "text that is no object": json.dumps(document(evaluation_cell(), text=5)),
    "no JSON": "hello",
    "latin-1": "n\u00e4".encode("latin-1"),
    "another document": "[]",
}


@pytest.mark.parametrize("name", RESULTS)
def test_damaged_results(tmp_path, refuse, name):
    content = RESULTS[name]
    path = tmp_path / "results.json"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    for command in (
        ["report", path, "--no-paper", "--out", tmp_path / "out"],
        ["merge-shards", path, "--out", tmp_path / "merged.json"],
    ):
        assert str(path) in refuse(*command)
    assert not (tmp_path / "out").exists() and not (tmp_path / "merged.json").exists()


def test_shards_that_are_none(tmp_path, refuse):
    path = tmp_path / "shard.json"
    path.write_text(with_cell(shard="1/1", checkpoint="c.pt"))
    said = refuse("merge-shards", path, "--out", tmp_path / "merged.json")
    assert "shards as `alibi-fairseq eval --shard` writes them (KeyError" in said


NASTY = "<script>x</script> | **b** ![i](http://e) `c` $x^{$ " + "long" * 100


def test_text_of_results_is_no_markup(tmp_path, capsys):
    cells = [evaluation_cell(16.0, length=length, model=NASTY) for length in (64, 128)]
    (tmp_path / "results.json").write_text(json.dumps(document(*cells, corpus=NASTY)))
    out = tmp_path / "out"
    words = ["report", tmp_path / "results.json", "--no-paper", "--out", out]
    assert cli.main([str(word) for word in words]) == 0
    for page in out.rglob("*.md"):
        text = page.read_text()
        assert "<script" not in text and "&lt;script&gt;" in text
        assert "**b**" not in text and "![i](" not in text and " | **" not in text
        assert len(page.name) < 200
    assert list(out.rglob("*.png"))


def odd_yaml(tmp_path, text):
    path = tmp_path / "comparison.yaml"
    path.write_text(text)
    return ["compare", path, "--out", tmp_path / "out"]


@pytest.mark.parametrize(
    "text",
    ["{", "a: [", "\tx", "2026-99-99", "!!python/object/apply:os.system [x]", "[" * 3000, "?"],
)
def test_garbage_instead_of_yaml(tmp_path, refuse, text):
    assert "comparison.yaml" in refuse(*odd_yaml(tmp_path, text))


@pytest.mark.parametrize("value", ["inf", "nan", "0", "-1"])
def test_memory_without_bound(data_bin, checkpoint, tmp_path, refuse, value):
    said = refuse(*evaluate(data_bin, checkpoint, tmp_path / "out.json"), "--memory-gb", value)
    assert "--memory-gb must be above 0 and finite" in said


@pytest.mark.parametrize("url", ["x", "ftp://a/b.zip", "http://", "https://[", "https://a.org/"])
def test_mirrors_that_are_no_addresses(tmp_path, refuse, url):
    words = ["prepare", "wikitext-103", "--mirror", url, "--out", tmp_path / "out"]
    assert "is not the address of a file" in refuse(*words)


def test_a_mirror_that_does_not_answer(tmp_path, refuse, monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    words = ["prepare", "wikitext-103", "--out", tmp_path / "out"]
    said = refuse(*words, "--mirror", "http://127.0.0.1:9/wikitext-103-v1.zip")
    assert "No mirror could be used (http://127.0.0.1:9/" in said


def test_an_output_in_a_place_that_cannot_be(tmp_path, refuse):
    (tmp_path / "results.json").write_text(json.dumps(GOOD))
    (tmp_path / "file").touch()
    for out in (tmp_path / "file" / "below", tmp_path / ("x" * 300)):
        words = ["report", tmp_path / "results.json", "--no-paper", "--out", out]
        assert "cannot be used (" in refuse(*words)


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
