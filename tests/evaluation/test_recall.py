"""Loss of tokens that complete a pair seen earlier in their window, against naive loops."""

from __future__ import annotations

import json
import math
import shutil
from collections import defaultdict

import numpy as np
import pytest
import torch
from results_documents import cells_of, evaluation_record, results_of

from alibi_fairseq.cli import main
from alibi_fairseq.cli.recall import Recall, recall_table
from alibi_fairseq.evaluation.checkpoint import load_checkpoint
from alibi_fairseq.evaluation.recall import (
    distance_ranges,
    distances_in,
    measure_recall,
    previous_occurrences,
)
from alibi_fairseq.evaluation.split import load_dictionary, load_split
from alibi_fairseq.evaluation.windows import Window, plan_windows
from alibi_fairseq.files import sha256_file
from alibi_fairseq.reporting import markdown
from alibi_fairseq.reporting.evaluation_output import context_table, evaluation_table
from alibi_fairseq.reporting.facts import short_paths
from alibi_fairseq.results.data_folder import DataFolder


def naive_distance(visible: list[int], target: int) -> int:
    """Return the distance of the target, given the inputs of its window up to its own input."""
    for distance in range(1, len(visible)):
        last = len(visible) - 1 - distance
        if visible[last] == visible[-1] and visible[last + 1] == target:
            return distance
    return 0


@pytest.mark.parametrize(("length", "stride"), [(16, 16), (16, 5), (1, 1), (200, 200)])
def test_distances_match_a_naive_search(length, stride):
    tokens = np.random.default_rng(1).integers(0, 4, 150)
    inputs = np.concatenate([[9], tokens[:-1]])
    previous = previous_occurrences(inputs, tokens)
    for window in plan_windows(len(tokens), length, stride):
        expected = []
        for position in range(window.first_scored, window.stop):
            visible = inputs[window.start : position + 1].tolist()
            expected.append(naive_distance(visible, tokens[position]))
        assert distances_in(window, previous).tolist() == expected


def test_pair_that_begins_before_the_window_does_not_count():
    inputs = np.array([9, 1, 2, 1])
    previous = previous_occurrences(inputs, np.array([1, 2, 1, 2]))
    assert distances_in(Window(1, 3, 4), previous).tolist() == [2]
    assert distances_in(Window(2, 3, 4), previous).tolist() == [0]


def test_ranges_cover_all_distances():
    assert distance_ranges(1) == [(0, 0)]
    assert distance_ranges(17) == [(0, 0), (1, 3), (4, 15), (16, 16)]
    assert distance_ranges(64) == [(0, 0), (1, 3), (4, 15), (16, 63)]


@pytest.mark.parametrize("length", [32, 100])
def test_losses_match_a_naive_loop(trained, length):
    checkpoint = trained("alibi")
    folder = DataFolder.open(trained.data)
    split = load_split(folder, "valid", load_dictionary(folder.path))
    model = load_checkpoint(checkpoint, folder.path)
    tensors = split.tensors(length, torch.device("cpu"))
    measured = measure_recall(model, tensors, length)

    tokens = split.tokens.tolist()
    inputs = tensors.inputs.tolist()
    sums: dict[tuple[int, int], float] = defaultdict(float)
    counts: dict[tuple[int, int], int] = defaultdict(int)
    for start in range(0, len(tokens), length):
        window = inputs[start : start + length]
        with torch.no_grad():
            scores = model.decoder(torch.tensor([window]))[0][0].double()
        log_probabilities = scores.log_softmax(dim=1)
        for index in range(len(window)):
            target = tokens[start + index]
            distance = naive_distance(window[: index + 1], target)
            (bin_,) = [(a, b) for a, b in distance_ranges(length) if a <= distance <= b]
            sums[bin_] -= float(log_probabilities[index, target])
            counts[bin_] += 1
    assert sum(found.tokens for found in measured) == len(tokens)
    assert sum(found.tokens for found in measured[1:]) > 10
    for found in measured:
        bin_ = (found.first, found.last)
        assert found.tokens == counts[bin_]
        if found.tokens:
            expected = sums[bin_] / counts[bin_] / math.log(2)
            assert found.loss_bits == pytest.approx(expected, rel=1e-6)


def test_recall_command(trained, tmp_path, capsys):
    out = tmp_path / "recall.json"
    words = ["recall", trained.data, "--path", trained("alibi"), trained("sinusoidal")]
    words += ["--lengths", "8,32", "--out", out]
    assert main([*map(str, words)]) == 0
    printed = capsys.readouterr().out
    assert "shorter than the evaluation length: at 8, 4–15 ends at 7.\n" in printed
    rows = cells_of(printed)
    assert rows[0][1:] == ["evaluated at", "new pair", "1–3", "4–15", "16–31"]
    assert [row[:2] for row in rows[1:]] == [
        ["ALiBi, L=32", "8"],
        ["ALiBi, L=32", "32"],
        ["Sinusoidal, L=32", "8"],
        ["Sinusoidal, L=32", "32"],
    ]
    content = json.loads(out.read_text())
    shown = content["results"][1]["ranges"][0]["loss_bits"]
    assert rows[2][2] == f"{shown:.3f}"
    assert content["provenance"]["data_sha256"]


@pytest.fixture
def measured_lengths(monkeypatch):
    """Return a list of the lengths that are measured from now on."""
    lengths = []

    def measure(model, tensors, length, *arguments):
        lengths.append(length)
        return measure_recall(model, tensors, length, *arguments)

    monkeypatch.setattr("alibi_fairseq.evaluation.recall.measure_recall", measure)
    return lengths


def test_interrupted_recall_resumes(trained, tmp_path, monkeypatch, capsys, measured_lengths):
    out = tmp_path / "recall.json"
    words = ["recall", trained.data, "--path", trained("alibi"), "--out", out, "--lengths"]

    def recall(lengths: str) -> int:
        arguments = [*map(str, words), lengths]
        monkeypatch.setattr("sys.argv", ["alibi-fairseq", *arguments])  # for the provenance
        return main(arguments)

    assert recall("8") == 0
    first = json.loads(out.read_text())
    write = Recall._write

    def write_and_interrupt(*arguments):
        write(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Recall, "_write", write_and_interrupt)
        assert recall("16,32") != 0
    capsys.readouterr()
    assert recall("8,16,32") == 0
    assert [row[1] for row in cells_of(capsys.readouterr().out)[1:]] == ["8", "16", "32"]
    assert measured_lengths == [8, 16, 32]
    content = json.loads(out.read_text())
    assert [result["length"] for result in content["results"]] == [8, 16, 32]
    assert content["results"][0] == first["results"][0]
    assert content["provenance"]["parts"][0] == first["provenance"]
    assert len(content["provenance"]["parts"]) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["recall.json"]


def test_recall_with_another_plugin_is_replaced(trained, tmp_path, measured_lengths):
    out = tmp_path / "recall.json"
    words = ["recall", trained.data, "--path", trained("alibi"), "--lengths", "8,16", "--out", out]
    assert main([*map(str, words)]) == 0
    expected = json.loads(out.read_text())["results"]
    other = json.loads(out.read_text())
    other["results"][0] |= {"plugin_sha256": "0" * 64, "ranges": []}
    out.write_text(json.dumps(other))
    measured_lengths.clear()
    assert main([*map(str, words)]) == 0
    assert measured_lengths == [8]
    assert json.loads(out.read_text())["results"] == expected


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "alibi_fairseq/results"}, "is not a file of `alibi-fairseq recall`"),
        ({"results": [{"length": 8}]}, "recall.json"),
        ({"split": "test"}, "another split, precision, or text"),
        ({"provenance": {"precision": "bf16"}}, "another split, precision, or text"),
        ({"provenance": {"data_sha256": "0" * 64}}, "another split, precision, or text"),
    ],
    ids=str,
)
def test_recall_replaces_no_other_file(
    trained, tmp_path, refuse, measured_lengths, changes, message
):
    out = tmp_path / "recall.json"
    words = ["recall", trained.data, "--path", trained("alibi"), "--lengths", "8", "--out", out]
    assert main([*map(str, words)]) == 0
    content = json.loads(out.read_text())
    changes = {**changes, "provenance": content["provenance"] | changes.get("provenance", {})}
    out.write_text(json.dumps(content | changes))
    before = out.read_bytes()
    measured_lengths.clear()
    assert message in refuse(*words)
    assert measured_lengths == []
    assert out.read_bytes() == before


def test_lengths_of_all_models_are_checked_before_any_is_measured(
    trained, refuse, measured_lengths
):
    command = ["recall", trained.data, "--path", trained("alibi"), trained("learned")]
    assert "at most 32 tokens, not 64" in refuse(*command, "--lengths", "16,64")
    assert measured_lengths == []


def test_checkpoint_replaced_while_it_is_loaded_is_refused(trained, tmp_path, monkeypatch, refuse):
    path = tmp_path / "model.pt"
    shutil.copy(trained("alibi"), path)

    def load_replaced(checkpoint, *arguments):
        shutil.copy(trained("sinusoidal"), path)
        return load_checkpoint(checkpoint, *arguments)

    monkeypatch.setattr("alibi_fairseq.evaluation.checkpoint.load_checkpoint", load_replaced)
    problem = refuse("recall", trained.data, "--path", path, "--lengths", "16")
    assert "was replaced during the evaluation" in problem


def test_checkpoint_replaced_while_another_is_measured_is_refused(
    trained, tmp_path, monkeypatch, refuse
):
    """The file keeps the measurements before it."""
    path = tmp_path / "model.pt"
    shutil.copy(trained("alibi"), path)

    def measure_and_replace(*arguments):
        shutil.copy(trained("sinusoidal"), path)
        return measure_recall(*arguments)

    monkeypatch.setattr("alibi_fairseq.evaluation.recall.measure_recall", measure_and_replace)
    out = tmp_path / "recall.json"
    command = ["recall", trained.data, "--path", trained("alibi"), path, "--out", out]
    assert "was replaced during the evaluation" in refuse(*command, "--lengths", "8,16")
    measured = json.loads(out.read_text())["results"]
    assert [result["length"] for result in measured] == [8, 16]
    assert {result["checkpoint_sha256"] for result in measured} == {sha256_file(trained("alibi"))}


@pytest.mark.parametrize("command", ["eval", "recall"])
def test_training_text_in_shards_is_refused(trained, tmp_path, refuse, command):
    shards = f"{trained.data}:{trained.data}"
    words = [command, shards, "--path", trained("alibi"), "--lengths", "16"]
    problem = refuse(*words, "--subset", "train", "--out", tmp_path / "results.json")
    assert "only the first would be evaluated" in problem


def test_models_of_one_run_name_have_different_rows():
    paths = [f"runs/{run}/alibi-128-seed1/checkpoint_last.pt" for run in ("a", "b")]
    found = {"first": 0, "last": 0, "tokens": 10, "loss_bits": 4.0}
    model = {"method": "ALiBi", "train_length": 128, "length": 1, "ranges": [found]}
    results = [{**model, "checkpoint": path} for path in paths]
    _, *rows = cells_of(markdown.to_markdown([recall_table(results, "valid")]))
    assert [row[0] for row in rows] == [
        "ALiBi, L=128 (a/alibi-128-seed1/checkpoint_last.pt)",
        "ALiBi, L=128 (b/alibi-128-seed1/checkpoint_last.pt)",
    ]
    results = results_of(*[evaluation_record(20.0, checkpoint=path) for path in paths])
    for table in (evaluation_table(results), context_table(results, 1.0, ["full"])):
        _, *rows = cells_of(table)
        assert [row[0] for row in rows] == [
            "a/alibi-128-seed1/checkpoint_last.pt",
            "b/alibi-128-seed1/checkpoint_last.pt",
        ]


def test_paths_are_as_short_as_they_can_be():
    assert short_paths(["runs/a/m.pt", "runs/b/m.pt"]) == {
        "runs/a/m.pt": "a/m.pt",
        "runs/b/m.pt": "b/m.pt",
    }
    assert short_paths(["a/m.pt", "/a/m.pt"]) == {"a/m.pt": "a/m.pt", "/a/m.pt": "/a/m.pt"}
