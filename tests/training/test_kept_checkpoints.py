"""Checkpoints that a training keeps after given numbers of updates."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from commands import SHORT
from fairseq import checkpoint_utils

from alibi_fairseq.cli import main
from alibi_fairseq.errors import UserInputError
from alibi_fairseq.plugin import shutdown
from alibi_fairseq.plugin.hooks import TrainingHooks
from alibi_fairseq.plugin.kept_checkpoints import KeptCheckpoints, check_kept_updates
from alibi_fairseq.plugin.save_dir import temporary_replacement

pytestmark = pytest.mark.usefixtures("arguments_of_pytest_stay")


def weights(path) -> dict[str, torch.Tensor]:
    """Return the weights in a checkpoint."""
    return torch.load(path, weights_only=False)["model"]


def equal(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.ci
def test_kept_checkpoint_is_that_of_a_shorter_training(data_bin, tmp_path, monkeypatch):
    monkeypatch.setenv("ALIBI_KEEP_AT", "")  # restored after the test

    def train(name: str, *options: str):
        vars(checkpoint_utils.save_checkpoint).pop("best", None)  # of an earlier test
        folder = tmp_path / name
        words = ["train", str(data_bin), *SHORT, "--lr-scheduler", "fixed", *options]
        assert main([*words, "--save-dir", str(folder)]) == 0
        return folder

    whole = train("whole", "--max-update", "6")
    shorter = train("shorter", "--max-update", "3")
    kept = train("kept", "--max-update", "6", "--keep-at", "3,5", "--save-interval-updates", "4")
    names = {path.name for path in kept.glob("checkpoint*.pt")}
    updates = {"checkpoint_3.pt", "checkpoint_1_4.pt", "checkpoint_5.pt"}
    assert names == {"checkpoint_best.pt", "checkpoint_last.pt", *updates}
    last = weights(kept / "checkpoint_last.pt")
    assert equal(last, weights(whole / "checkpoint_last.pt"))
    after_three = weights(kept / "checkpoint_3.pt")
    assert equal(after_three, weights(shorter / "checkpoint_last.pt"))
    assert not equal(after_three, last)
    # The interval of saves in the checkpoint is that of the options.
    saved = torch.load(kept / "checkpoint_3.pt", weights_only=False)["cfg"]["checkpoint"]
    assert saved["save_interval_updates"] == 4


@pytest.mark.ci
def test_training_killed_before_the_copy_keeps_it_when_resumed(data_bin, tmp_path, monkeypatch):
    monkeypatch.setenv("ALIBI_KEEP_AT", "")
    words = ["train", str(data_bin), *SHORT, "--lr-scheduler", "fixed", "--save-dir", str(tmp_path)]
    assert main([*words, "--max-update", "3"]) == 0
    assert main([*words, "--max-update", "6", "--keep-at", "3"]) == 0
    state = torch.load(tmp_path / "checkpoint_3.pt", weights_only=False)
    assert state["optimizer_history"][-1]["num_updates"] == 3


def test_processes_have_one_interval_after_an_overflow(tmp_path, monkeypatch):
    """After a save to keep, an update that overflows ends with the same number of updates."""
    monkeypatch.setenv("ALIBI_KEEP_AT", "3")
    intervals = []
    for saves in (True, False):
        trainer = fake_trainer(tmp_path, [1, 2, 3, 3, 4])
        for step in range(5):
            trainer.train_step([])
            intervals.append(trainer.cfg.checkpoint.save_interval_updates)
            if step == 2 and saves:
                trainer.save_checkpoint(str(tmp_path / "checkpoint_last.pt"), {})
    assert intervals == 2 * [2, 2, 3, 0, 2]


def test_checkpoint_of_an_earlier_training_is_replaced(tmp_path, monkeypatch):
    monkeypatch.setenv("ALIBI_KEEP_AT", "3")
    kept = tmp_path / "checkpoint_3.pt"
    last = tmp_path / "checkpoint_last.pt"
    kept.write_text("earlier training")
    last.write_text("this training")
    trainer = fake_trainer(tmp_path, [3])
    assert kept.read_text() == "earlier training"
    trainer.train_step([])
    trainer.save_checkpoint(str(last), {})
    assert kept.read_text() == "this training"

    kept.unlink()
    kept.write_text("earlier training")
    KeptCheckpoints(trainer, frozenset([3]))  # killed before the copy, and resumed
    assert kept.read_text() == "this training"


@pytest.mark.parametrize("has_links", [True, False])
def test_kept_checkpoint_stays_when_the_last_one_is_replaced(tmp_path, monkeypatch, has_links):
    """It is a link if possible; a process killed before left one to another checkpoint."""
    monkeypatch.setenv("ALIBI_KEEP_AT", "3")
    kept = tmp_path / "checkpoint_3.pt"
    last = tmp_path / "checkpoint_last.pt"
    last.write_text("three updates")
    best = tmp_path / "checkpoint_best.pt"
    best.write_text("one update")
    os.link(best, kept.with_suffix(".unfinished"))

    def fail(*_):
        raise OSError("no links")

    if not has_links:
        monkeypatch.setattr(os, "link", fail)
    trainer = fake_trainer(tmp_path, [3])
    trainer.train_step([])
    trainer.save_checkpoint(str(last), {})
    assert kept.samefile(last) == has_links
    with temporary_replacement(last) as temporary:
        Path(temporary).write_text("four updates")
    assert kept.read_text() == "three updates"
    assert best.read_text() == "one update"
    assert not kept.with_suffix(".unfinished").exists()


def fake_trainer(folder, updates: list[int]) -> SimpleNamespace:
    """Return a trainer with hooks whose steps end after given numbers of updates."""
    reached = iter(updates)
    saving = SimpleNamespace(save_interval_updates=2, save_dir=str(folder), patience=0)
    trainer = SimpleNamespace(
        updates=0,
        get_train_iterator=None,
        get_valid_iterator=None,
        save_checkpoint=lambda filename, extra_state: None,
        task=SimpleNamespace(),
        data_parallel_world_size=1,
        is_data_parallel_master=True,
        cfg=SimpleNamespace(
            checkpoint=saving, dataset=SimpleNamespace(validate_interval_updates=0)
        ),
    )
    trainer.get_num_updates = lambda: trainer.updates

    def train_step(samples, raise_oom):
        trainer.updates = next(reached)
        return {}

    trainer.train_step = train_step
    TrainingHooks(trainer, epochs=None, stop_handler=shutdown.TrainingStopHandler(), record=None)
    return trainer


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"no_save": True}, "--keep-at keeps nothing with --no-save"),
        ({"no_last_checkpoints": True}, "may keep nothing .* --no-last-checkpoints"),
        ({"max_update": 4}, "--keep-at 5 is after the last update, --max-update 4"),
        ({"validate_after_updates": 5}, "--keep-at 3 keeps nothing, .* --validate-after-updates 5"),
    ],
)
def test_updates_without_a_save_are_rejected(options, message):
    accepted = {"max_update": 0, "validate_after_updates": 3}
    accepted |= {"no_save": False, "no_last_checkpoints": False}
    updates = frozenset([3, 5])
    check_kept_updates(updates, **accepted)
    check_kept_updates(updates, **(accepted | {"max_update": 5, "validate_after_updates": 0}))
    last_only = {"max_update": 5, "validate_after_updates": 6}
    check_kept_updates(frozenset([5]), **(accepted | last_only))
    check_kept_updates(frozenset(), **(accepted | options))
    with pytest.raises(UserInputError, match=message):
        check_kept_updates(updates, **(accepted | options))


def test_training_without_a_save_to_keep_does_not_start(data_bin, tmp_path, monkeypatch, refuse):
    monkeypatch.setenv("ALIBI_KEEP_AT", "")
    words = ["train", data_bin, *SHORT, "--save-dir", tmp_path / "run"]
    refused = refuse(*words, "--keep-at", "2", "--validate-after-updates", "3")
    assert "--keep-at 2 keeps nothing" in refused
    refused = refuse(*words, "--keep-at", "2", "--no-last-checkpoints")
    assert "--keep-at may keep nothing" in refused
    assert not (tmp_path / "run").exists()


def test_checkpoint_of_a_failed_update_is_not_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("ALIBI_KEEP_AT", "3")
    trainer = fake_trainer(tmp_path, [3])
    trainer.train_step([])
    for name in ("checkpoint_last.pt", "crash.pt"):
        (tmp_path / name).write_text(name)
        trainer.save_checkpoint(str(tmp_path / name), {})
    assert (tmp_path / "checkpoint_3.pt").read_text() == "checkpoint_last.pt"
