"""The series that a training records, in ``training.json`` and in its checkpoints."""

from __future__ import annotations

import pytest
import torch
from fairseq_runs import SMALL, run_train, training_config, write_corpus

from alibi_fairseq.evaluation.checkpoint import load_checkpoint
from alibi_fairseq.evaluation.config import SweepConfig
from alibi_fairseq.evaluation.measurement import run_sweep
from alibi_fairseq.files import sha256_file
from alibi_fairseq.results import file
from alibi_fairseq.results.data_hashes import DataHashes
from alibi_fairseq.results.file import load_training
from alibi_fairseq.results.result import group_seeds
from alibi_fairseq.results.series import SERIES_KEY, Series, read_series
from alibi_fairseq.results.settings import canonical
from alibi_fairseq.results.training_settings import collect_settings

FLAGS = (
    *("--task", "language_modeling", "--tokens-per-sample", "16", "--max-tokens", "64"),
    *("--position-method", "alibi"),
)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("data"), train=2000, valid=200)


def recorded(folder) -> Series:
    """Return the series at the end of a training."""
    return load_training(folder).results[-1].series


def run(data, folder, *flags, updates: int = 2):
    run_train(data, folder, *FLAGS, *flags, "--max-update", str(updates))
    return recorded(folder)


@pytest.fixture(scope="module")
def folder(data, tmp_path_factory):
    """Return the folder of a run of two updates."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    run(data, folder)
    return folder


def planned(data, *flags, updates: int = 2) -> Series:
    """Return the series that a plan expects of a run."""
    words = [*SMALL.split(), "--cpu", *FLAGS, *flags, "--max-update", str(updates)]
    cfg = training_config(*words)
    return Series(collect_settings(cfg, 1, DataHashes.of(data), None))


@pytest.mark.ci
@pytest.mark.parametrize(
    "flags",
    [
        (),
        ("--lr-scheduler", "inverse_sqrt", "--warmup-updates", "5", "--update-freq", "2"),
        ("--lr-scheduler", "cosine", "--min-lr", "0.001", "--warmup-updates", "1"),
        ("--lr-scheduler", "polynomial_decay", "--total-num-update", "9"),
        ("--adam-betas", "(0.9, 0.98)", "--clip-norm", "1", "--store-ema"),
        ("--position-method", "rotary,none", "--attention-window", "8,0"),
        (
            *("--task", "segment_language_modeling", "--position-method", "transformer_xl"),
            *("--mem-len", "16", "--criterion", "chunked_cross_entropy"),
        ),
    ],
    ids=str,
)
def test_training_records_the_series_of_its_plan(data, tmp_path, flags):
    """fairseq changes its configuration during a training."""
    series = run(data, tmp_path, *flags)
    expected = planned(data, *flags)
    assert canonical(series.settings) == canonical(expected.settings)
    assert series == expected


@pytest.mark.ci
def test_model_of_fairseq_has_a_series(data, tmp_path):
    flags = ("--arch", "transformer_lm", "--max-update", "2")
    run_train(data, tmp_path, *FLAGS[:6], *flags)
    cfg = training_config(*SMALL.split(), "--cpu", *FLAGS[:6], *flags)
    expected = Series(collect_settings(cfg, 1, DataHashes.of(data), None))
    assert recorded(tmp_path) == expected


def test_checkpoint_has_the_series(data, folder):
    state = torch.load(folder / "checkpoint_last.pt", weights_only=True)
    series = read_series(state["extra_state"][SERIES_KEY], "checkpoint")
    assert series == recorded(folder)
    assert series.method.label == "ALiBi"
    assert series.train_length == 16
    assert series.facts.layers == 2
    assert series.facts.vocabulary == len((data / "dict.txt").read_text().splitlines()) + 4
    assert "save_dir" not in str(series.settings)


def test_eval_copies_the_series_of_a_copied_checkpoint(data, folder, tmp_path):
    """Without its ``training.json``, and merged with a second seed."""
    run(data, tmp_path / "two", "--seed", "6")
    checkpoints = []
    for seed, source in ((5, folder), (6, tmp_path / "two")):
        copy = tmp_path / f"copy{seed}.pt"
        copy.write_bytes((source / "checkpoint_last.pt").read_bytes())
        checkpoints.append(copy)
    config = SweepConfig(lengths=(16,), splits=("valid",))
    run_sweep(data, checkpoints, config, tmp_path / "results.json")
    (tmp_path / "alone").mkdir()
    moved = (tmp_path / "results.json").rename(tmp_path / "alone" / "results.json")
    first, second = file.load(moved).results
    assert first.series == second.series == recorded(folder)
    assert list(group_seeds([first, second]).values()) == [[first, second]]
    hashes = {first.checkpoint_sha256, second.checkpoint_sha256}
    assert hashes == {sha256_file(path) for path in checkpoints}


@pytest.mark.ci
def test_resumed_options_are_in_the_history(data, tmp_path):
    first = run(data, tmp_path / "a", updates=2)
    longer = run(data, tmp_path / "a", "--log-interval", "7", updates=4)
    assert longer == first
    changed = run(data, tmp_path / "a", "--lr", "0.1", updates=6)
    assert changed != first
    assert [stage.until for stage in changed.history] == [4]
    assert changed != planned(data, "--lr", "0.1", updates=6)
    loaded = load_checkpoint(tmp_path / "a" / "checkpoint_last.pt", data)
    assert loaded.weights.series == changed


def test_weights_at_the_start_count(data, folder, tmp_path):
    start = str(folder / "checkpoint_last.pt")
    tuned = run(data, tmp_path / "tuned", "--finetune-from-model", start)
    assert tuned.start == sha256_file(start)
    assert tuned != recorded(folder)
    resumed = run(data, tmp_path / "tuned", "--finetune-from-model", start, updates=4)
    assert resumed == tuned


def test_weights_in_the_save_folder_are_a_start(data, folder, tmp_path):
    start = folder / "checkpoint_last.pt"
    (tmp_path / "tuned").mkdir()
    (tmp_path / "tuned" / start.name).write_bytes(start.read_bytes())
    tuned = run(data, tmp_path / "tuned", "--reset-optimizer")
    assert tuned.start == sha256_file(start)
    assert run(data, tmp_path / "tuned", updates=4).start == tuned.start


def test_other_training_text_is_another_series(data, folder, tmp_path):
    torch.manual_seed(1)
    other = write_corpus(tmp_path, train=2100, valid=200)
    series = run(other, tmp_path / "run")
    assert series != recorded(folder)
    results = [*file.load(folder / "training.json").results]
    results += file.load(tmp_path / "run" / "training.json").results
    assert all(len(group) == 1 for group in group_seeds(results).values())


def test_data_of_another_layout_is_known_by_its_path(data, tmp_path, monkeypatch):
    def fail(*arguments):
        raise FileNotFoundError("no train.idx")

    monkeypatch.setattr(DataHashes, "of", fail)
    series = run(data, tmp_path)
    assert series.settings["data"] == str(data)
