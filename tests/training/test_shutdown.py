"""Runs that receive a signal save, stop, and resume to the same result."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from fairseq.trainer import Trainer
from fairseq_runs import run_train, same_training_state, write_corpus

from alibi_fairseq.errors import EXIT_CODE_FILE, UserInputError
from alibi_fairseq.plugin import shutdown
from alibi_fairseq.plugin.hooks import TrainingHooks
from alibi_fairseq.results.file import load
from alibi_fairseq.results.file_names import TRAINING_FILE
from alibi_fairseq.stop_signals import STOP_SIGNALS

FLAGS = ("--task", "language_modeling", "--tokens-per-sample", "16", "--max-tokens", "64")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("data"), train=2000, valid=200)


@pytest.fixture(scope="module")
def whole(data, tmp_path_factory):
    """Return the last checkpoint of an undisturbed run."""
    return run_train(data, tmp_path_factory.mktemp("whole"), *FLAGS, "--max-update", "40")


def exit_code_of(handler, saves=True, environment=None) -> int:
    """Return the exit code of a training command that ended without an exception."""
    try:
        shutdown.exit_if_stopped_early(handler, saves, environment or {})
    except SystemExit as end:
        return end.code
    return 0


def signal_at_update(monkeypatch, update: int, number: int) -> None:
    """Send this process a signal in the middle of the update that follows ``update`` others."""
    prepare = Trainer._prepare_sample

    def sending(trainer, sample, *rest):
        if trainer.get_num_updates() == update:
            os.kill(os.getpid(), number)
        return prepare(trainer, sample, *rest)

    monkeypatch.setattr(Trainer, "_prepare_sample", sending)


@pytest.mark.ci
@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_resumed_run_is_bitwise_identical(monkeypatch, whole, data, tmp_path, number):
    flags = (*FLAGS, "--max-update", "40")
    with monkeypatch.context() as patch:
        signal_at_update(patch, 10, number)
        stopped = run_train(data, tmp_path / "stopped", *flags)
    assert stopped["optimizer_history"][-1]["num_updates"] == 11
    assert 0 < stopped["extra_state"]["train_iterator"]["iterations_in_epoch"] == 11
    assert stopped["cfg"]["optimization"]["max_update"] == 40
    assert not (tmp_path / "stopped" / "checkpoint_best.pt").exists()  # no time for a validation

    resumed = run_train(data, tmp_path / "stopped", *flags)
    assert resumed["optimizer_history"][-1]["num_updates"] == 40
    assert same_training_state(whole, resumed)


def test_stopped_run_saves_without_last_checkpoints(monkeypatch, data, tmp_path):
    signal_at_update(monkeypatch, 3, signal.SIGTERM)
    stopped = run_train(data, tmp_path, *FLAGS, "--max-update", "9", "--no-last-checkpoints")
    assert stopped["optimizer_history"][-1]["num_updates"] == 4


def test_stopped_run_reports_that_nothing_is_saved(monkeypatch, data, tmp_path, caplog):
    signal_at_update(monkeypatch, 3, signal.SIGTERM)
    with caplog.at_level("INFO"), pytest.raises(FileNotFoundError):
        run_train(data, tmp_path, *FLAGS, "--max-update", "9", "--no-save")
    assert "nothing is saved after update 4" in caplog.text


def started(train_step=None) -> SimpleNamespace:
    """Return a trainer before its first update, with signal handlers."""
    limits = SimpleNamespace(max_update=5, max_epoch=0)
    data = SimpleNamespace(validate_interval_updates=0)
    saving = SimpleNamespace(save_interval_updates=0, save_dir="checkpoints")
    trainer = SimpleNamespace(
        train_step=train_step,
        get_train_iterator=None,
        get_valid_iterator=None,
        save_checkpoint=None,
        task=SimpleNamespace(),
        data_parallel_world_size=1,
        get_num_updates=lambda: 0,
        cfg=SimpleNamespace(optimization=limits, dataset=data, checkpoint=saving),
    )
    epochs = SimpleNamespace(next_epoch_idx=1)
    TrainingHooks(trainer, epochs, shutdown.start_stop_handler(), record=None)
    return trainer


def test_signal_handlers_are_restored():
    before = [signal.getsignal(number) for number in STOP_SIGNALS]
    with shutdown.listening():
        started()
        assert [signal.getsignal(number) for number in STOP_SIGNALS] != before
    assert [signal.getsignal(number) for number in STOP_SIGNALS] == before


class TestStopRequest:
    def test_second_ctrl_c_interrupts(self):
        handler = shutdown.TrainingStopHandler()
        handler.training = True
        handler.receive(signal.SIGTERM)
        handler.receive(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            handler.receive(signal.SIGINT)
        assert handler.signal == signal.SIGTERM

    def test_signals_before_training(self):
        handler = shutdown.TrainingStopHandler()
        handler.receive(signal.SIGUSR1)
        with pytest.raises(KeyboardInterrupt):
            handler.receive(signal.SIGINT)
        assert handler.signal == signal.SIGUSR1

    @pytest.mark.parametrize(
        ("number", "training", "early", "code"),
        [
            (signal.SIGTERM, True, True, 75),
            (signal.SIGTERM, True, False, 0),
            (signal.SIGTERM, False, False, 75),  # its children train
            (None, True, True, 75),  # another process received the signal
            (None, False, False, 0),
        ],
    )
    def test_exit_code(self, tmp_path, number, training, early, code):
        handler = shutdown.TrainingStopHandler()
        handler.signal = number
        handler.training = training
        handler.stopped_early = early
        assert exit_code_of(handler, saves=True) == code
        assert exit_code_of(handler, saves=False) == (1 if code else 0)
        # A worker of torchrun returns, and tells the launcher if it has one of ours.
        file = tmp_path / "exit-code"
        worker = {"TORCHELASTIC_RUN_ID": "1"}
        assert exit_code_of(handler, environment=worker) == 0
        assert exit_code_of(handler, environment={**worker, EXIT_CODE_FILE: str(file)}) == 0
        assert file.exists() == (code != 0)
        if code:
            assert file.read_text() == str(code)

    def test_training_children_are_asked_to_stop(self, monkeypatch):
        children = [SimpleNamespace(pid=7), SimpleNamespace(pid=None)]
        asked = []
        monkeypatch.setattr("multiprocessing.active_children", lambda: children)
        monkeypatch.setattr(os, "kill", lambda *call: asked.append(call))
        handler = shutdown.TrainingStopHandler()
        handler.receive(signal.SIGINT)
        assert asked == [(7, signal.SIGUSR1)]
        handler.training = True  # its children load data
        handler.receive(signal.SIGTERM)
        assert asked == [(7, signal.SIGUSR1)]

    @pytest.mark.parametrize(
        ("updates", "last", "early"), [(4, 5, True), (5, 5, False), (9, 0, True)]
    )
    def test_signal_after_last_update_is_ignored(self, caplog, updates, last, early):
        limits = SimpleNamespace(max_update=last, max_epoch=0, stop_min_lr=-1)
        data = SimpleNamespace(validate_after_updates=0, validate_interval_updates=0)
        saving = SimpleNamespace(save_interval_updates=0, no_save=False, patience=0)
        cfg = SimpleNamespace(optimization=limits, dataset=data, checkpoint=saving)
        trainer = SimpleNamespace(cfg=cfg, get_num_updates=lambda: updates, get_lr=lambda: 1)
        epochs = SimpleNamespace(next_epoch_idx=1, end_of_epoch=lambda: False)
        handler = shutdown.TrainingStopHandler()
        with caplog.at_level("INFO", logger="alibi_fairseq"):
            shutdown.stop_after_this_update(handler, trainer, epochs)
        assert handler.stopped_early == early
        assert f"saving after update {updates}" in caplog.text


#: Options whose validation losses soon stop improving.
DIVERGING = ("--lr", "1", "--validate-interval-updates", "1")
#: Options whose learning rate is 0.001 after 36 updates.
DECAYING = (
    *("--lr-scheduler", "inverse_sqrt"),
    *("--warmup-updates", "4", "--warmup-init-lr", "0.003"),
)


def files_of(folder) -> dict:
    """Return the modification times and contents of the files in a folder."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in paths}


@pytest.mark.parametrize(
    "limit",
    [
        ("--max-update", "20"),
        pytest.param(("--max-epoch", "2"), marks=pytest.mark.ci),
        # An epoch has 32 updates, the last of which is smaller.
        pytest.param(("--max-update", "63"), marks=pytest.mark.ci),
        pytest.param(("--max-update", "64"), marks=pytest.mark.ci),
        (*DIVERGING, "--patience", "2"),
        (*DECAYING, "--stop-min-lr", "0.001"),
    ],
    ids="-".join,
)
def test_finished_training_changes_nothing(data, tmp_path, limit):
    first = run_train(data, tmp_path, *FLAGS, *limit)
    before = files_of(tmp_path)
    again = run_train(data, tmp_path, *FLAGS, *limit)
    assert files_of(tmp_path) == before
    assert first["optimizer_history"] == again["optimizer_history"]


@pytest.mark.ci
def test_resumed_training_counts_validations_without_improvement(data, tmp_path):
    flags = (*FLAGS, *DIVERGING, "--max-update", "40")
    whole = run_train(data, tmp_path / "whole", *flags, "--patience", "3")
    last = whole["optimizer_history"][-1]["num_updates"]
    assert 3 < last < 40
    stop = ("--max-update", str(last - 1))
    run_train(data, tmp_path / "resumed", *flags, "--patience", "3", *stop)
    resumed = run_train(data, tmp_path / "resumed", *flags, "--patience", "3")
    assert same_training_state(whole, resumed)
    longer = run_train(data, tmp_path / "resumed", *flags, "--patience", "4")
    assert longer["optimizer_history"][-1]["num_updates"] > last
    restarted = (*flags, "--patience", "3", "--reset-meters")
    again = run_train(data, tmp_path / "whole", *restarted)
    assert again["optimizer_history"][-1]["num_updates"] >= last + 4


@pytest.mark.ci
def test_training_without_optimizer_state_resumes_only_if_finished(data, tmp_path):
    flags = (*FLAGS, "--no-save-optimizer-state")
    run_train(data, tmp_path, *flags, "--max-update", "20")
    before = files_of(tmp_path)
    run_train(data, tmp_path, *flags, "--max-update", "20")
    assert files_of(tmp_path) == before
    with pytest.raises(UserInputError, match="without optimizer state"):
        run_train(data, tmp_path, *flags, "--max-update", "40")
    assert files_of(tmp_path) == before
    tuned = run_train(
        *(data, tmp_path / "tuned", *flags, "--max-update", "2"),
        *("--finetune-from-model", str(tmp_path / "checkpoint_last.pt")),
    )
    assert tuned["optimizer_history"][-1]["num_updates"] == 2


@pytest.mark.ci
def test_finished_training_continues_to_higher_limit(whole, data, tmp_path):
    run_train(data, tmp_path, *FLAGS, "--max-update", "20")
    run_train(data, tmp_path, *FLAGS, "--max-update", "20")
    assert same_training_state(whole, run_train(data, tmp_path, *FLAGS, "--max-update", "40"))


def interval_flags(interval: str) -> tuple[str, ...]:
    """Return the flags of 40 updates with a validation or checkpoint after every fifth."""
    return (*FLAGS, "--max-update", "40", interval, "5", "--keep-interval-updates", "1")


def validation_losses(folder: Path) -> list[tuple[int, float]]:
    """Return the number of updates and the loss of each validation."""
    cells = load(folder / TRAINING_FILE).results
    return [(cell.updates, cell.values.loss_bits) for cell in cells]


@pytest.fixture(scope="module")
def undisturbed_runs(data, tmp_path_factory):
    """Return the folders of undisturbed runs, by the flag that sets the interval."""
    folders = {}
    for interval in ("--validate-interval-updates", "--save-interval-updates"):
        folders[interval] = tmp_path_factory.mktemp("undisturbed")
        run_train(data, folders[interval], *interval_flags(interval))
    return folders


@pytest.mark.ci
@pytest.mark.parametrize(
    ("update", "interval"),
    [
        (10, "--save-interval-updates"),
        pytest.param(10, "--validate-interval-updates", marks=pytest.mark.ci),
        # The ends of an epoch and of the training.
        pytest.param(32, "--save-interval-updates", marks=pytest.mark.ci),
        pytest.param(40, "--save-interval-updates", marks=pytest.mark.ci),
    ],
)
def test_signal_skips_no_validation(
    monkeypatch, data, tmp_path, undisturbed_runs, update, interval
):
    with monkeypatch.context() as patch:
        signal_at_update(patch, update - 1, signal.SIGTERM)
        run_train(data, tmp_path, *interval_flags(interval))
    resumed = run_train(data, tmp_path, *interval_flags(interval))
    folder = undisturbed_runs[interval]
    undisturbed = torch.load(folder / "checkpoint_last.pt", weights_only=True)
    assert same_training_state(undisturbed, resumed)
    for part in ("best", "val_loss"):
        assert undisturbed["extra_state"][part] == resumed["extra_state"][part]
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in folder.iterdir()}
    assert validation_losses(tmp_path) == validation_losses(folder)
