"""The results file of a training run, and of a resumed one."""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from fairseq.file_io import PathManager
from fairseq.tasks.language_modeling import LanguageModelingTask
from fairseq.trainer import Trainer
from fairseq_runs import run_eval_lm, run_train, training_config, write_corpus

from alibi_fairseq.errors import UserInputError
from alibi_fairseq.plugin import training_record
from alibi_fairseq.plugin.training_record import TrainingRecord, validation_precision
from alibi_fairseq.results.file import load
from alibi_fairseq.results.file_names import TRAINING_FILE
from alibi_fairseq.results.result import Result
from alibi_fairseq.results.values import Cost

FLAGS = (
    *("--task", "language_modeling", "--tokens-per-sample", "16", "--max-tokens", "64"),
    *("--validate-interval-updates", "10", "--position-method", "alibi"),
)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("data"), train=2000, valid=200)


def run(data, folder, updates, *flags):
    run_train(data, folder, *FLAGS, "--max-update", str(updates), *flags)
    return load(folder / TRAINING_FILE)


@pytest.fixture(scope="module")
def folder(data, tmp_path_factory):
    """Return the folder of a run of 20 updates."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    run(data, folder, 20)
    return folder


def records_of(folder) -> Sequence[Result]:
    return load(folder / TRAINING_FILE).results


def test_training_record_describes_data_and_seed(data, folder):
    document = load(folder / TRAINING_FILE)
    assert {result.case.kind for result in document.results} == {"validation"}
    assert {result.case.corpus for result in document.results} == {data.name}
    assert document.provenance.seed == 5
    assert document.provenance.data_sha256


def test_commit_is_read_before_the_first_update(data, tmp_path, monkeypatch):
    """The checkout may change while a training runs, but not the code that it has loaded."""
    events = []
    state = {"git_commit": "a" * 40, "git_clean": True}
    updated = TrainingRecord.updated

    def git_state():
        events.append("commit")
        return state

    def note_update(self, tokens):
        events.append("update")
        updated(self, tokens)

    monkeypatch.setattr(training_record, "git_state", git_state)
    monkeypatch.setattr(TrainingRecord, "updated", note_update)
    recorded = run(data, tmp_path, 2).provenance
    assert events == ["commit", "update", "update"]
    assert recorded.git_commit == state["git_commit"]


@pytest.mark.parametrize("error", [UserInputError("no split"), FileNotFoundError("no file")])
def test_record_of_other_data_layout_is_warned_of(data, tmp_path, monkeypatch, caplog, error):
    def fail(**facts):
        raise error

    monkeypatch.setattr(training_record, "collect_provenance", fail)
    run_train(data, tmp_path, *FLAGS, "--max-update", "2")
    assert f"training.json could not be written ({error})" in caplog.text


def test_any_error_of_the_record_is_warned_of_once(data, tmp_path, monkeypatch, caplog):
    def fail(*arguments, **keywords):
        raise KeyError("layers")

    monkeypatch.setattr(TrainingRecord, "_cost", fail)
    state = run_train(data, tmp_path, *FLAGS, "--max-update", "20")
    assert state["optimizer_history"][-1]["num_updates"] == 20
    assert caplog.text.count("training.json could not be written ('layers')") == 1


#: Batches of 24,000 tokens have more nats than fp16 can represent.
FP16 = (
    *("--memory-efficient-fp16", "--fp16-init-scale", "1", "--ddp-backend", "legacy_ddp"),
    *("--no-share-decoder-input-output-embed", "--adaptive-softmax-cutoff", "6,14"),
    *("--criterion", "adaptive_loss"),
    *("--max-tokens", "24000", "--validate-interval-updates", "1"),
)


@pytest.mark.ci
def test_infinite_loss_in_fp16_does_not_end_training(tmp_path, caplog):
    (tmp_path / "data").mkdir()
    large = write_corpus(tmp_path / "data", train=48000, valid=24000)
    folder = tmp_path / "run"
    state = run_train(large, folder, *FLAGS, *FP16, "--max-update", "2")
    assert state["extra_state"]["val_loss"] == math.inf
    state = run_train(large, folder, *FLAGS, *FP16, "--max-update", "3")
    assert state["optimizer_history"][-1]["num_updates"] == 3
    assert all(weight.isfinite().all() for weight in state["model"].values())
    assert [record.updates for record in records_of(folder)] == [1, 2, 3]
    assert [record.values for record in records_of(folder)] == [None, None, None]
    assert [record.status for record in records_of(folder)] == ["", "", "diverged"]
    assert (
        records_of(folder)[-1].cost.trained_tokens > records_of(folder)[0].cost.trained_tokens > 0
    )
    assert caplog.text.count("The loss on valid is inf.") == 2  # once in each process


def test_diverged_training_is_saved(data, tmp_path, caplog):
    state = run_train(data, tmp_path, *FLAGS, "--lr", "1e30", "--max-update", "1")
    assert state["extra_state"]["val_loss"] is None
    (record,) = records_of(tmp_path)
    assert record.values is None
    assert record.status == "diverged"
    assert "The loss on valid is nan." in caplog.text
    with pytest.raises(FloatingPointError):
        run_train(data, tmp_path, *FLAGS, "--lr", "1e30", "--max-update", "2")


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf, 1e30])
def test_loss_without_finite_perplexity_is_left_out(loss):
    cpu = torch.device("cpu")
    cfg = training_config("--arch", "alibi_lm")
    trainer = SimpleNamespace(cfg=cfg, device=cpu, is_data_parallel_master=True)
    assert TrainingRecord(trainer, None)._values(loss, 10) is None


def test_task_receives_path_of_saved_checkpoint(data, tmp_path, monkeypatch):
    saved = []

    def post_save(task, path, updates):
        saved.append((Path(path).parent, updates))

    monkeypatch.setattr(LanguageModelingTask, "post_save", post_save, raising=False)
    run_train(data, tmp_path, *FLAGS, "--max-update", "2", "--patience", "9")
    assert saved == [(tmp_path, 2)]


def test_each_validation_adds_record(folder):
    first, second = records_of(folder)
    assert first.updates == 10
    assert second.updates == 20
    assert first.cost.trained_tokens == 10 * 64
    assert second.cost.trained_tokens == 20 * 64
    assert first.cost.seconds < second.cost.seconds


@pytest.mark.ci
def test_record_describes_model_and_validation(folder):
    for record in records_of(folder):
        assert record.series.facts.architecture == "alibi_lm"
        assert record.cost.device == "cpu"
        assert record.series.method.notation == "alibi"
        assert record.series.train_length == 16
        assert record.case.length == 16
        assert record.case.split == "valid"
        assert record.values.tokens == 200
        assert record.cost.peak_memory_mb > 10
        assert record.cost.tokens_per_second > 0
        assert record.cost.gpu_seconds is None
        assert record.series.settings["dataset.max_tokens"] == 64
        assert "save_dir" not in str(record.series.settings)


def test_record_agrees_with_log(data, tmp_path, caplog):
    with caplog.at_level(logging.INFO):
        document = run(data, tmp_path / "run", 20, "--log-format", "json")
    logged = [json.loads(record.message) for record in caplog.records if record.name == "valid"]
    for record, line in zip(document.results, logged, strict=True):
        assert record.values.loss_bits == pytest.approx(float(line["valid_loss"]), abs=6e-4)
    parameters = document.results[0].series.facts.parameters
    assert f"num. shared model params: {parameters:,} " in caplog.text


def test_recorded_loss_equals_fairseq_evaluator(data, folder):
    flags = ("--tokens-per-sample", "16", "--sample-break-mode", "none", "--max-tokens", "64")
    checkpoint = folder / "checkpoint_last.pt"
    measured = run_eval_lm(data, checkpoint, "--gen-subset", "valid", *flags)
    last = records_of(folder)[-1]
    assert last.values.loss_bits == pytest.approx(float(measured["loss"]), abs=1e-4)


def without_times(record: Result) -> Result:
    return replace(record, cost=Cost(trained_tokens=record.cost.trained_tokens))


@pytest.mark.ci
def test_resumed_run_continues_results_file(data, tmp_path):
    uninterrupted = run(data, tmp_path / "uninterrupted", 30).results
    begun = run(data, tmp_path / "resumed", 13).results
    assert [record.updates for record in begun] == [10, 13]
    resumed = run(data, tmp_path / "resumed", 30).results
    assert [record.updates for record in resumed] == [10, 13, 20, 30]
    seconds = [record.cost.seconds for record in resumed]
    assert seconds == sorted(seconds)
    assert seconds[0] > 0
    shared = [without_times(record) for record in resumed if record.updates != 13]
    assert shared == [without_times(record) for record in uninterrupted]


@pytest.mark.ci
def test_speed_per_process_counts_processes_of_each_update(data, tmp_path):
    """The first ten updates are recorded as those of four processes."""
    (first,) = run(data, tmp_path, 10).results
    assert first.cost.tokens_per_second_per_process == first.cost.tokens_per_second
    state = torch.load(tmp_path / "checkpoint_last.pt", weights_only=True)
    record = state["extra_state"]["training_record"]
    seconds = record["totals"]["timed_seconds"]
    record["totals"]["timed_process_seconds"] = 4 * seconds
    torch.save(state, tmp_path / "checkpoint_last.pt")

    last = run(data, tmp_path, 20).results[-1]
    state = torch.load(tmp_path / "checkpoint_last.pt", weights_only=True)
    totals = state["extra_state"]["training_record"]["totals"]
    process_seconds = totals["timed_seconds"] + 3 * seconds
    assert totals["timed_process_seconds"] == pytest.approx(process_seconds)
    expected = totals["timed_tokens"] / process_seconds
    assert last.cost.tokens_per_second_per_process == pytest.approx(expected, abs=0.1)


def make_trainer(processes: int, is_first: bool) -> SimpleNamespace:
    """Return what a record reads of fairseq's trainer."""
    return SimpleNamespace(
        cfg=None,
        device=torch.device("cpu"),
        data_parallel_world_size=processes,
        is_data_parallel_master=is_first,
    )


def test_hashing_the_data_is_no_training(monkeypatch):
    """The shards of CC100+RoBERTa take minutes at each start."""
    times = iter([0.0, 600.0, 607.0])
    monkeypatch.setattr(training_record.time, "monotonic", lambda: next(times))
    monkeypatch.setattr(training_record, "series_of_training", lambda *_: None)
    record = TrainingRecord(make_trainer(processes=1, is_first=True), None)
    record.plugin = None
    record.set_series(None)
    record._count_time()
    assert record.totals["seconds"] == 7


def test_seconds_of_an_update_count_for_each_process():
    record = TrainingRecord(make_trainer(processes=4, is_first=False), None)
    record.updated(64)  # the first one after a start is not timed
    record.updated(64)
    assert record.totals["timed_seconds"] > 0
    assert record.totals["timed_process_seconds"] == 4 * record.totals["timed_seconds"]


def test_run_from_other_weights_starts_new_record(data, tmp_path):
    run(data, tmp_path / "first", 10)
    restore = ("--finetune-from-model", str(tmp_path / "first" / "checkpoint_last.pt"))
    second = run(data, tmp_path / "second", 10, *restore)
    assert [record.cost.trained_tokens for record in second.results] == [640]


@pytest.mark.ci
def test_record_after_stop_matches_checkpoint(data, tmp_path):
    """Validations after the last checkpoint are measured again and replace the earlier records."""
    folder = tmp_path / "run"
    run(data, folder, 15, "--save-interval-updates", "5", "--keep-interval-updates", "-1")
    early = folder / "checkpoint_1_5.pt"
    early.replace(folder / "checkpoint_last.pt")
    document = run(data, folder, 15)
    assert [record.updates for record in document.results] == [5, 10, 15]
    assert [record.cost.trained_tokens for record in document.results] == [320, 640, 960]


@pytest.fixture
def clock(monkeypatch):
    """Return a clock that tests advance, and that an update advances by a second."""
    clock = SimpleNamespace(seconds=0.0)
    updated = TrainingRecord.updated

    def update(record, tokens):
        clock.seconds += 1
        updated(record, tokens)

    timer = SimpleNamespace(perf_counter=lambda: clock.seconds, monotonic=time.monotonic)
    monkeypatch.setattr(training_record, "time", timer)
    monkeypatch.setattr(TrainingRecord, "updated", update)
    return clock


def timed_seconds(data, folder, *flags) -> float:
    """Return the seconds of four updates that count for the speed: all but the first."""
    state = run_train(data, folder, *FLAGS, *flags, "--max-update", "4")
    return state["extra_state"]["training_record"]["totals"]["timed_seconds"]


def test_copies_of_a_checkpoint_are_no_updates(data, tmp_path, monkeypatch, clock):
    """fairseq copies what it has saved to ``checkpoint_best.pt`` and ``checkpoint_last.pt``."""
    copy = PathManager.copy

    def copy_slowly(*arguments, **keywords):
        clock.seconds += 100
        return copy(*arguments, **keywords)

    monkeypatch.setattr(PathManager, "copy", copy_slowly)
    assert timed_seconds(data, tmp_path, "--save-interval-updates", "2") == 3
    assert clock.seconds >= 200


def test_failed_write_of_the_record_is_no_update(data, tmp_path, monkeypatch, clock):
    def fail_slowly(*_):
        clock.seconds += 100
        raise OSError("the disk is full")

    monkeypatch.setattr(training_record, "save", fail_slowly)
    assert timed_seconds(data, tmp_path, "--validate-interval-updates", "2") == 3
    assert clock.seconds >= 200


def test_tokens_of_repeated_updates_count_once(data, tmp_path, monkeypatch):
    """fairseq repeats an update whose gradients overflow with ``--amp``."""
    clip_gradients = Trainer.clip_grad_norm
    calls = 0

    def overflow_twice(trainer, clip_norm):
        nonlocal calls
        calls += 1
        norm = clip_gradients(trainer, clip_norm)
        return norm * math.inf if calls in (2, 4) else norm

    monkeypatch.setattr(Trainer, "clip_grad_norm", overflow_twice)
    document = run(data, tmp_path / "run", 10, "--amp")
    assert calls == 12
    assert document.results[-1].cost.trained_tokens == 10 * 64


@pytest.mark.parametrize(
    ("flags", "precision"),
    [
        (["--amp"], "fp32"),
        (["--bf16"], "bf16"),
        (["--memory-efficient-bf16"], "bf16"),
        (["--memory-efficient-fp16"], "fp16"),
        ([], "fp32"),
    ],
)
def test_validation_precision(flags, precision):
    cfg = training_config("--arch", "alibi_lm_tiny", *flags)
    assert validation_precision(cfg.common) == precision


def test_peak_memory_on_gpu_includes_updates(data, tmp_path, monkeypatch):
    """fairseq resets PyTorch's peak after each update, before the record is written."""
    clip_gradients = Trainer.clip_grad_norm
    log_stats = Trainer._reduce_and_log_stats

    def begin_gpu(trainer, clip_norm):
        trainer.cuda = True
        trainer.cuda_env = SimpleNamespace(total_memory_in_GB=80)
        return clip_gradients(trainer, clip_norm)

    def end_gpu(trainer, *arguments):
        trainer.cuda = False
        return log_stats(trainer, *arguments)

    monkeypatch.setattr(Trainer, "clip_grad_norm", begin_gpu)
    monkeypatch.setattr(Trainer, "_reduce_and_log_stats", end_gpu)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 29.3e9)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: None)
    document = run(data, tmp_path / "run", 10)
    assert document.results[-1].cost.peak_memory_mb == 29_300


def test_trained_tokens_are_no_sequences(data, tmp_path):
    document = run(data, tmp_path / "run", 10, "--sentence-avg")
    assert document.results[-1].cost.trained_tokens == 10 * 64
