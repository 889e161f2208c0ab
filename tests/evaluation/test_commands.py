"""The verbs: output for people, one sentence and exit code 2 for mistakes."""

from __future__ import annotations

import pytest
import torch

from alibi_fairseq.cli import main
from alibi_fairseq.results.provenance import STATE_KEY
from alibi_fairseq.results.schema import load_document


@pytest.fixture
def evaluate(trained, tmp_path):
    def run(*options: str, verb: str = "eval", out: str = "results.json") -> int:
        arguments = [verb, str(trained.data), "--path", str(trained("alibi"))]
        return main([*arguments, "--out", str(tmp_path / out), "--device", "cpu", *options])

    return run


def test_eval(evaluate, tmp_path, capsys):
    points = ["--lengths", "16,48", "--stride", "full,4", "--subset", "valid,test"]
    assert evaluate(*points) == 0
    cells = load_document(tmp_path / "results.json")["cells"]
    measured = [(cell["subset"], cell["length"], cell["stride"]) for cell in cells]
    assert measured == [
        (subset, length, stride)
        for subset in ("valid", "test")
        for length in (16, 48)
        for stride in (length, 4)
    ]
    printed = capsys.readouterr()
    assert "100%" in printed.err
    table = printed.out.splitlines()
    assert "perplexity" in table[0] and "mean ctx" in table[0]
    for cell, line in zip(cells, table[2:]):
        assert f"{cell['perplexity']:.2f}" in line and f"{cell['mean_context']:.1f}" in line


def test_merge_shards(evaluate, tmp_path, capsys):
    for index in (1, 2):
        options = ["--lengths", "16", "--shard", f"{index}/2", "--memory-gb", "0.0002"]
        assert evaluate(*options, out=f"{index}.json") == 0
    assert evaluate("--lengths", "16", "--memory-gb", "0.0002", out="whole.json") == 0
    shards = [str(tmp_path / f"{index}.json") for index in (2, 1)]
    assert main(["merge-shards", *shards, "--out", str(tmp_path / "merged.json")]) == 0
    (merged,) = load_document(tmp_path / "merged.json")["cells"]
    (whole,) = load_document(tmp_path / "whole.json")["cells"]
    assert merged["loss_bits"] == whole["loss_bits"] and merged["tokens"] == whole["tokens"]
    assert main(["merge-shards", shards[0], "--out", str(tmp_path / "half.json")]) == 2
    assert not (tmp_path / "half.json").exists()


def test_position_loss(evaluate, tmp_path):
    assert evaluate("--lengths", "16", "--buckets", "4", verb="position-loss") == 0
    document = load_document(tmp_path / "results.json")
    assert document["kind"] == "position_loss"
    bounds = [(cell["position_from"], cell["position_to"]) for cell in document["cells"]]
    assert bounds == [(0, 2), (2, 4), (4, 8), (8, 16)]


@pytest.mark.parametrize(
    ("verb", "flags", "named"),
    [
        *(("eval", flags, flags.split()[0]) for flags in ("--lengths 16,x", "--lengths 16,")),
        ("eval", "--lengths 0", "--lengths"),
        *(("eval", f"--stride {value}", "--stride") for value in ("17", "0", "half")),
        ("eval", "--shard 4/3", "--shard"),
        ("eval", "--device abacus", "--device"),
        ("eval", "--memory-gb -1", "--memory-gb"),
        ("eval", "--model-overrides {'a':1}", "--model-overrides"),
        ("eval", "--model-overrides [1]", "--model-overrides"),
        *(("eval", f"--out {device}", "--out") for device in ("/dev/full", "/dev/zero")),
        ("eval", "--effective-context -1", "--effective-context"),
        ("eval", "--effective-context --shard 1/2", "--effective-context"),
        *(("position-loss", f"--buckets {n}", "--buckets") for n in ("0", "-1", "1000000000")),
        ("position-loss", "--stride 17", "--stride"),
    ],
)
def test_mistakes(trained, tmp_path, refuse, verb, flags, named):
    command = [verb, trained.data, "--path", trained("alibi"), "--device", "cpu"]
    command += ["--lengths", 16, "--out", tmp_path / "r.json"]
    assert named in refuse(*command, *flags.split())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("option", ["--path", "--dict"])
def test_files_that_are_not_there(evaluate, trained, tmp_path, refuse, option):
    path = tmp_path / "model.pt"
    state = torch.load(trained("alibi"), weights_only=True)
    del state["task_state"][STATE_KEY]  # which makes --dict superfluous
    torch.save(state, path)
    command = ["eval", trained.data, "--path", path, "--lengths", 16, "--out", tmp_path / "r.json"]
    for wrong in (tmp_path / "nowhere", tmp_path):
        assert str(wrong) in refuse(*command, option, wrong)
    assert str(path) in refuse(*command, "--path", tmp_path)  # the one that is there
    assert list(tmp_path.iterdir()) == [path]
