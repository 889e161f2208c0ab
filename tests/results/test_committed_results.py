"""Committed results of studies: their series, and the seeds that are averaged."""

from __future__ import annotations

import shlex
from collections import defaultdict

import pytest
from commands import ROOT
from fairseq_runs import training_config

from alibi_fairseq.results.data_hashes import DataHashes
from alibi_fairseq.results.file import load, load_training
from alibi_fairseq.results.file_names import TRAINING_FILE
from alibi_fairseq.results.result import group_seeds
from alibi_fairseq.results.settings import canonical
from alibi_fairseq.results.training_settings import collect_settings

RESULTS = ROOT / "results"
#: Results of a study that is still running, whose models do not have all seeds yet.
RUNNING = RESULTS / "title"
#: Folders of the models of finished studies.
CELLS = sorted(
    path.parent
    for path in RESULTS.glob(f"*/*/cells/*/{TRAINING_FILE}")
    if RUNNING not in path.parents
)


def test_committed_studies_have_a_series_per_model():
    """All models have three seeds, but one."""
    seeds_of: dict[str, set[int | None]] = defaultdict(set)
    names_of: dict[str, set[str]] = defaultdict(set)
    for folder in CELLS:
        results = []
        for path in folder.glob("*.json"):
            results += load(path).results
        (series,) = {result.series for result in results}
        seeds_of[series.id].update(result.seed for result in results)
        study = folder.parent.parent.name
        names_of[series.id].add(f"{study} {folder.name.rsplit('-seed', 1)[0]}")
    names = {folder.parent.parent / folder.name.rsplit("-seed", 1)[0] for folder in CELLS}
    assert len(seeds_of) == len(names) > 30
    assert sorted(map(len, seeds_of.values())) == [1] + (len(names) - 1) * [3]
    assert all(len(names) == 1 for names in names_of.values())


def test_committed_results_are_averaged_over_three_seeds():
    """Two results of one checkpoint agree, and no seed has two checkpoints."""
    studied = []
    for folder in CELLS:
        for path in folder.glob("evaluation*.json"):
            studied += load(path).results
    groups = group_seeds(studied)
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
        name = folder.name.rsplit("-seed", 1)[0]
        commands[folder.parent.parent, name] = load_training(folder)
    assert len(commands) > 30
    for training in commands.values():
        _, _, _, command, _, *flags = shlex.split(training.provenance.command)
        assert command == "train"
        series = training.results[0].series
        train = series.settings["data.train"]
        dictionary = training.provenance.dictionary_sha256
        hashes = DataHashes((train,), ("0" * 64,), str(dictionary), {})
        settings = collect_settings(training_config(*flags), 1, hashes, None)
        assert canonical(settings) == canonical(series.settings)
