"""Training with memory: resuming, validation, epochs, and update frequency."""

from __future__ import annotations

import math

import pytest
import torch
from fairseq.trainer import Trainer
from fairseq_runs import equal, run_train, same_training_state, write_corpus

from alibi_fairseq.errors import UserInputError
from alibi_fairseq.models.decoder import AlibiDecoder

XL = (
    "--task segment_language_modeling --tokens-per-sample 8 --batch-size 4 "
    "--position-method transformer_xl --mem-len 12 "
)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Return a corpus with ten segments per epoch."""
    torch.manual_seed(1)
    return write_corpus(tmp_path_factory.mktemp("data"), train=317, valid=101)


@pytest.fixture
def memories(monkeypatch):
    """Return a list of (whether in training mode, number of remembered states) per forward pass."""
    passes = []
    extract_features = AlibiDecoder.extract_features

    def record_state(self, tokens, *args, state=None, **kwargs):
        remembered = state[0].shape[0] if state else 0
        passes.append((self.training, remembered))
        return extract_features(self, tokens, *args, state=state, **kwargs)

    monkeypatch.setattr(AlibiDecoder, "extract_features", record_state)
    return passes


@pytest.fixture(scope="module")
def whole(corpus, tmp_path_factory):
    """Return the last checkpoint of an uninterrupted run."""
    return run_train(corpus, tmp_path_factory.mktemp("whole"), *XL.split(), "--max-update", "17")


@pytest.mark.ci
@pytest.mark.parametrize(
    "stop", [10, *(pytest.param(stop, marks=pytest.mark.ci) for stop in (6, 13))]
)
def test_resumed_run_matches_uninterrupted_run(corpus, whole, tmp_path, stop):
    flags = XL.split()
    run_train(corpus, tmp_path / "parts", *flags, "--max-update", str(stop))
    resumed = run_train(corpus, tmp_path / "parts", *flags, "--max-update", "17")
    assert same_training_state(whole, resumed)


@pytest.mark.ci
def test_resumed_run_needs_saved_memory(corpus, whole, tmp_path):
    flags = XL.split()
    half = run_train(corpus, tmp_path / "parts", *flags, "--max-update", "6")
    assert half["extra_state"]["train_iterator"]["memory"]["segment"] == 5
    half["extra_state"]["train_iterator"]["memory"] = {}
    torch.save(half, tmp_path / "parts" / "checkpoint_last.pt")
    resumed = run_train(corpus, tmp_path / "parts", *flags, "--max-update", "17")
    assert not equal(whole["model"], resumed["model"])


def test_validation_and_epochs_start_without_memory(corpus, tmp_path, memories):
    flags = [*XL.split(), "--max-update", "13"]
    flags += ["--save-interval-updates", "4", "--keep-interval-updates", "1"]
    run_train(corpus, tmp_path / "a", *flags)
    training = [remembered for is_training, remembered in memories if is_training]
    epoch = [0, 8, 12, 12, 12, 12, 12, 12, 12, 12]
    assert training == epoch + epoch[:3]
    validation = [remembered for is_training, remembered in memories if not is_training]
    validations = len(validation) // 4
    assert validations >= 4
    assert validation == [0, 8, 12, 12] * validations  # up to 26 of 101 tokens in each row


def test_validation_keeps_training_memory(corpus, whole, tmp_path):
    flags = [*XL.split(), "--max-update", "17", "--validate-interval-updates", "2"]
    assert equal(run_train(corpus, tmp_path, *flags)["model"], whole["model"])


@pytest.mark.ci
def test_update_freq_reads_consecutive_segments(corpus, tmp_path, memories):
    flags = [*XL.split(), "--update-freq", "3", "--disable-validation"]
    whole = run_train(corpus, tmp_path / "whole", *flags, "--max-update", "6")
    epoch = [0, 8, 12, 12, 12, 12, 12, 12, 12, 12]  # 3 + 3 + 3 + 1 batches
    assert [remembered for _, remembered in memories] == epoch + epoch[:6]
    run_train(corpus, tmp_path / "parts", *flags, "--max-update", "2")
    resumed = run_train(corpus, tmp_path / "parts", *flags, "--max-update", "6")
    assert same_training_state(whole, resumed)


def test_repeated_update_reads_same_past(corpus, tmp_path, memories, monkeypatch):
    """fairseq repeats an update whose gradients overflow with ``--amp``."""
    clip_gradients = Trainer.clip_grad_norm
    updates = []

    def overflow_once(trainer, clip_norm):
        norm = clip_gradients(trainer, clip_norm)
        update = trainer.get_num_updates()
        overflows = update in (0, 2) and update not in updates
        updates.append(update)
        return norm * math.inf if overflows else norm

    monkeypatch.setattr(Trainer, "clip_grad_norm", overflow_once)
    flags = [
        *XL.split(),
        "--update-freq",
        "3",
        "--disable-validation",
        "--max-update",
        "5",
        "--amp",
    ]
    run_train(corpus, tmp_path, *flags)
    assert updates == [0, 0, 1, 2, 2, 3, 4]
    first = [0, 8, 12]
    full = [12] * 3
    assert [remembered for _, remembered in memories] == [
        *(first + first + full + full + full + [12]),
        *first,
    ]


def test_epoch_can_end_before_short_batch(corpus, tmp_path, memories):
    flags = [*XL.split(), "--update-freq", "3", "--skip-remainder-batch", "--disable-validation"]
    run_train(corpus, tmp_path / "a", *flags, "--max-update", "5")
    assert [remembered for _, remembered in memories] == [0, 8, *[12] * 7, 0, 8, *[12] * 4]


@pytest.fixture(scope="module")
def interrupted(corpus, tmp_path_factory):
    """Return a checkpoint after two of ten segments."""
    folder = tmp_path_factory.mktemp("interrupted")
    run_train(corpus, folder, *XL.split(), "--max-update", "2", "--disable-validation")
    return folder / "checkpoint_last.pt"


@pytest.mark.ci
@pytest.mark.parametrize("change", ["--batch-size 8", "--batch-size 2", "--tokens-per-sample 16"])
def test_other_division_of_text_needs_new_epoch(corpus, interrupted, tmp_path, change):
    flags = [*XL.split(), "--restore-file", str(interrupted), *change.split()]
    with pytest.raises(UserInputError, match="saved mid-epoch with 317 tokens of text in 4 rows"):
        run_train(corpus, tmp_path, *flags, "--max-update", "3")


@pytest.mark.ci
def test_other_text_needs_new_epoch(interrupted, tmp_path):
    data = write_corpus(tmp_path, train=200, valid=101)
    flags = [*XL.split(), "--restore-file", str(interrupted), "--max-update", "3"]
    with pytest.raises(UserInputError, match="would read 200 tokens of text in 4 rows"):
        run_train(data, tmp_path / "run", *flags)
    run_train(data, tmp_path / "run", *flags, "--reset-dataloader", "--disable-validation")


@pytest.mark.ci
def test_rows_may_change_between_epochs(corpus, tmp_path, memories):
    flags = [*XL.split(), "--disable-validation"]
    run_train(corpus, tmp_path, *flags, "--max-update", "10")
    memories.clear()
    run_train(corpus, tmp_path, *flags, "--batch-size", "8", "--max-update", "12")
    assert [remembered for _, remembered in memories] == [0, 8]


@pytest.mark.ci
def test_other_update_freq_reads_whole_epoch(corpus, tmp_path, memories, caplog):
    """Five segments were read, which are two updates of two, so the fifth is read again."""
    flags = [*XL.split(), "--disable-validation"]
    run_train(corpus, tmp_path, *flags, "--max-update", "5")
    memories.clear()
    resumed = run_train(corpus, tmp_path, *flags, "--update-freq", "2", "--max-update", "9")
    assert [remembered for _, remembered in memories] == [0, 8, 12, 12, 12, 12, 0, 8]
    assert resumed["extra_state"]["train_iterator"]["epoch"] == 2
    assert "1 of the 5 batches that were read in this epoch are read again" in caplog.text


def test_method_without_memory_trains_on_segments(corpus, tmp_path, memories):
    flags = "--task segment_language_modeling --tokens-per-sample 8 --batch-size 4 --max-update 3"
    state = run_train(corpus, tmp_path / "a", *flags.split(), "--position-method", "alibi")
    assert {remembered for _, remembered in memories} == {0}
    assert state["extra_state"]["train_iterator"]["memory"] == {}
