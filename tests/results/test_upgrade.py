"""Committed results of version 3 as results of today: no model is split, and none collide."""

from __future__ import annotations

import json
import shlex
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import ROOT
from fairseq_runs import training_config

from alibi_fairseq.results.benchmark import BenchmarkFile
from alibi_fairseq.results.data_hashes import DataHashes
from alibi_fairseq.results.file import load, load_training
from alibi_fairseq.results.options_of_version_3 import settings_from_text
from alibi_fairseq.results.result import Result, seeds
from alibi_fairseq.results.settings import canonical
from alibi_fairseq.results.training_settings import collect_settings
from alibi_fairseq.results.upgrade import MODEL_FILE, upgraded
from alibi_fairseq.results.version_3 import (
    Measurement,
    ModelRecord,
    ProbeMeasurement,
    Validation,
    load_results_file,
)

RESULTS = ROOT / "results"
#: Results of a study that is still running, whose models do not have all seeds yet.
RUNNING = RESULTS / "title"
RUNNING_STUDIES = ("runs/studies/3M/", "runs/studies/12M/", "runs/studies/49M/")
CELLS = sorted(
    path.parent for path in RESULTS.glob(f"**/{MODEL_FILE}") if RUNNING not in path.parents
)
#: Folder of a study that was moved between the training of its models.
MOVED = "runs/small_models/primary/wikipedia/data-bin"
MOVED_TO = "runs/studies/primary/wikipedia/data-bin"


def results_files() -> Iterator[Path]:
    """Yield the committed results files of models."""
    for path in sorted(RESULTS.glob("**/*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        is_results = isinstance(content, dict) and content.get("version") == 3
        if is_results and content["kind"] in ("evaluation", "probe", "training"):
            yield path


@pytest.fixture(scope="module")
def records() -> list[tuple[ModelRecord, Result]]:
    """Return every committed record with its result."""
    pairs: list[tuple[ModelRecord, Result]] = []
    for path in results_files():
        content = load_results_file(path)
        assert not isinstance(content, BenchmarkFile)
        pairs += zip(content.records, upgraded(content, path.parent), strict=True)
    return pairs


def test_committed_studies_have_33_series():
    """32 models with three seeds, and one with one."""
    seeds_of: dict[str, set[int | None]] = defaultdict(set)
    names_of: dict[str, set[str]] = defaultdict(set)
    assert len(CELLS) == 97
    for folder in CELLS:
        results = []
        for path in folder.glob("*.json"):
            if path.name != MODEL_FILE:
                results += load(path).results
        (series,) = {result.series for result in results}
        seeds_of[series.id].update(result.seed for result in results)
        study = folder.parent.parent.name
        names_of[series.id].add(f"{study} {folder.name.rsplit('-seed', 1)[0]}")
    assert len(seeds_of) == 33
    assert sorted(map(len, seeds_of.values())) == [1] + 32 * [3]
    assert all(len(names) == 1 for names in names_of.values())


def old_key(record: ModelRecord) -> tuple:
    """Return the identity of a model in version 3, without three facts that follow from others.

    - ``vocabulary``: training records lack it, and the dictionary counts.
    - ``memory_length``: training records lack it, and the method has it.
    - ``data``: one study was moved. The hash of the text counts instead of the path.
    """
    model = record.model
    options = model.options
    if options is not None and options["data"] == MOVED:
        options = {**options, "data": MOVED_TO}
    return (
        model.method,
        model.plugin_sha256,
        model.train_length,
        model.architecture,
        model.parameters,
        model.layers,
        model.width,
        None if options is None else tuple(sorted(options.items())),
        # Seeds reach their lowest validation loss after different numbers of updates.
        None if model.is_best_checkpoint else model.updates,
        model.precision,
        json.dumps(model.overrides, sort_keys=True) if model.overrides else None,
        model.label,
    )


def test_models_are_grouped_as_in_version_3(records):
    new_groups: dict[tuple, set[tuple]] = defaultdict(set)
    old_groups: dict[tuple, set[tuple]] = defaultdict(set)
    for record, result in records:
        new = (result.series.id, result.reading)
        old = old_key(record)
        new_groups[old].add(new)
        old_groups[new].add(old)
    split = {old: news for old, news in new_groups.items() if len(news) > 1}
    merged = {new: olds for new, olds in old_groups.items() if len(olds) > 1}
    assert not split
    assert not merged
    assert len(new_groups) > 500


def test_every_loss_and_text_is_kept(records):
    assert len(records) > 2900
    for record, result in records:
        assert result.values is not None
        loss = record.accuracy if isinstance(record, ProbeMeasurement) else record.loss_bits
        assert result.values.outcome == loss
        assert result.seed == record.model.seed
        if isinstance(record, Measurement):
            assert result.case.text == record.data_sha256
            assert (result.case.length, result.case.stride) == (record.length, record.stride)
        elif isinstance(record, Validation):
            assert result.case.kind == "validation"


def test_committed_results_are_averaged_over_three_seeds(records):
    """Two results of one checkpoint agree, and no seed has two checkpoints."""
    studied = []
    for record, result in records:
        checkpoint = str(result.checkpoint)
        is_running = checkpoint.startswith(RUNNING_STUDIES)
        is_study = checkpoint.startswith("runs/") and "demo" not in checkpoint and not is_running
        if isinstance(record, Measurement) and is_study:
            studied.append(result)
    groups = seeds(studied)
    assert len(groups) > 400
    for (row, _), members in groups.items():
        assert row.run == 0
        one_seed = "sinusoidal-3M" in str(members[0].checkpoint)
        assert len(members) == (1 if one_seed else 3)


@pytest.mark.ci
def test_recorded_commands_are_the_series_of_their_results():
    """A plan that is made today knows the committed models, so none is trained again."""
    commands = {}
    for folder in CELLS:
        training = load_training(folder)
        name = folder.name.rsplit("-seed", 1)[0]
        commands[folder.parent.parent, name] = (folder, training)
    assert len(commands) == 33
    for folder, training in commands.values():
        _, _, _, command, _, *flags = shlex.split(training.provenance.command)
        assert command == "train"
        data = json.loads((folder / MODEL_FILE).read_text())["settings"]["data"]
        dictionary = training.provenance.dictionary_sha256
        hashes = DataHashes((data["train.bin"],), ("0" * 64,), str(dictionary), {})
        settings = collect_settings(training_config(*flags), 1, hashes, None)
        (result, *_) = load(folder / "training.json").results
        assert canonical(settings) == canonical(result.series.settings)


def test_options_of_version_3_are_text():
    options = {
        "dropout": "0",
        "fp16": "",
        "linear_biases": "False",
        "update_freq": "2,4",
        "adaptive_softmax_cutoff": "20000,60000",
        "lr_scheduler": "cosine",
        "max_update": "100",
        "distributed_world_size": "8",
        "finetune_from_model": "a.pt",
    }
    settings = canonical(settings_from_text(options, "alibi_lm"))
    assert settings == {
        "model": "alibi_lm",
        "lr_scheduler": "cosine",
        "model.dropout": 0,
        "model.linear_biases": False,
        "model.adaptive_softmax_cutoff": [20000, 60000],
        "common.fp16": True,
        "lr_scheduler.max_update": 100,
        "start.finetune_from_model": "a.pt",
        "batches_per_update": [16, 32],
    }


def test_end_of_a_schedule_comes_from_the_command(tmp_path):
    """Version 3 left it out of records."""
    source = RESULTS / "gpu" / "hour" / "cells" / "books-alibi-512-seed1" / "training.json"
    content = json.loads(source.read_text())
    for record in content["records"]:
        del record["model"]["options"]["total_num_update"]
    command = content["provenance"]["command"]
    ids = []
    for number in ("1500", "3000"):
        changed = command.replace("--total-num-update 1500", f"--total-num-update {number}")
        content["provenance"]["command"] = changed
        path = tmp_path / number / "training.json"
        path.parent.mkdir()
        path.write_text(json.dumps(content))
        (result, *_) = load(path).results
        ids.append(result.series.id)
    assert ids[0] != ids[1]


def test_training_whose_last_loss_is_not_finite_diverged(tmp_path):
    source = CELLS[0] / "training.json"
    content = json.loads(source.read_text())
    del content["records"][0]["loss_bits"]
    del content["records"][-1]["loss_bits"]
    (tmp_path / "training.json").write_text(json.dumps(content))
    results = load(tmp_path / "training.json").results
    assert results[0].values is None
    assert [result.status for result in results] == [*[""] * (len(results) - 1), "diverged"]
