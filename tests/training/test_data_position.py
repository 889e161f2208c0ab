"""Position in the data of a training that resumes on another number of processes."""

from __future__ import annotations

import shutil

import pytest
import torch
from fairseq.data.iterators import EpochBatchIterator, GroupedIterator
from fairseq_runs import run_train, same_training_state, write_corpus

from alibi_fairseq.errors import UserInputError
from alibi_fairseq.plugin.data_position import adapt_position

SEQUENCES = 18
BATCHES = 82


class Numbers(torch.utils.data.Dataset):
    """Dataset of the numbers of its samples."""

    def __len__(self):
        return SEQUENCES * BATCHES

    def __getitem__(self, index):
        return index


def make_iterators(processes: int) -> list[EpochBatchIterator]:
    """Return fairseq's iterators of all processes."""
    order = list(range(SEQUENCES * BATCHES))
    batches = [order[start : start + SEQUENCES] for start in range(0, len(order), SEQUENCES)]
    iterators = []
    for process in range(processes):
        options = {"seed": 1, "num_shards": processes, "shard_id": process}
        iterators.append(EpochBatchIterator(Numbers(), list, batches, **options))
    return iterators


def read(iterators, passes: int, updates: int = 10**6) -> list[int]:
    """Return the samples that all processes read in an epoch, up to a number of updates."""
    grouped = [GroupedIterator(iterator.next_epoch_itr(), passes) for iterator in iterators]
    samples: list[int] = []
    while updates and grouped[0].has_next():
        updates -= 1
        for iterator in grouped:
            for batch in next(iterator):
                samples += batch
    return samples


def options_of(processes: int, passes: int, **options) -> dict:
    return {"distributed_world_size": processes, "update_freq": [passes], **options}


@pytest.mark.parametrize(("before", "after"), [(8, 4), (4, 8), (8, 1), (1, 8), (8, 2)])
@pytest.mark.parametrize("stop", [1, 5, 10])
def test_each_sample_is_read_once_on_other_processes(before, after, stop):
    first = make_iterators(before)
    samples = read(first, 8 // before, stop)
    position = first[0].state_dict()
    adapt_position(
        position, options_of(before, 8 // before), options_of(after, 8 // after), "checkpoint.pt"
    )
    second = make_iterators(after)
    for iterator in second:
        iterator.load_state_dict(position)
    samples += read(second, 8 // after)
    assert sorted(samples) == list(range(SEQUENCES * BATCHES))
    assert all(iterator.end_of_epoch() for iterator in second)


def test_position_is_rounded_down_to_whole_update(caplog):
    position = {"epoch": 1, "iterations_in_epoch": 5}
    adapt_position(position, options_of(8, 1), options_of(3, 2), "checkpoint.pt")
    assert position["iterations_in_epoch"] == 12  # 6 updates of 6 batches
    assert "4 of the 40 batches" in caplog.text


def test_grouped_shuffling_needs_same_processes():
    position = {"epoch": 1, "iterations_in_epoch": 5}
    saved = options_of(8, 1, grouped_shuffling=True)
    adapt_position(position, saved, saved, "checkpoint.pt")
    assert position["iterations_in_epoch"] == 5
    current = options_of(4, 2, grouped_shuffling=True)
    with pytest.raises(UserInputError, match="--distributed-world-size 8"):
        adapt_position(position, saved, current, "checkpoint.pt")


@pytest.mark.parametrize("position", [{}, {"plan": {}}])
def test_other_task_needs_new_epoch(position):
    position.update(epoch=1, iterations_in_epoch=5)
    saved = options_of(1, 1, task="language_modeling")
    current = options_of(1, 1, task="segment_language_modeling")
    with pytest.raises(UserInputError, match="--task segment_language_modeling would change"):
        adapt_position(position, saved, current, "checkpoint.pt")


FLAGS = ("--task", "language_modeling", "--tokens-per-sample", "16", "--update-freq", "2")


@pytest.mark.ci
def test_training_resumes_on_fewer_processes(tmp_path):
    torch.manual_seed(1)
    data = write_corpus(tmp_path, train=500, valid=60)
    batch = ("--max-tokens", "32")
    whole = run_train(data, tmp_path / "whole", *FLAGS, *batch, "--max-update", "5")
    state = run_train(data, tmp_path / "parts", *FLAGS, *batch, "--max-update", "3")
    # One pass of two processes instead of two passes of one.
    state["extra_state"]["train_iterator"]["iterations_in_epoch"] //= 2
    state["cfg"]["distributed_training"]["distributed_world_size"] = 2
    torch.save(state, tmp_path / "parts" / "checkpoint_last.pt")

    with pytest.raises(UserInputError, match="--max-tokens 32 .* --max-tokens 64"):
        run_train(data, tmp_path / "parts", *FLAGS, "--max-tokens", "64", "--max-update", "5")
    resumed = run_train(data, tmp_path / "parts", *FLAGS, *batch, "--max-update", "5")
    assert same_training_state(resumed, whole)


@pytest.mark.ci
def test_other_batches_need_new_epoch(tmp_path):
    torch.manual_seed(1)
    data = write_corpus(tmp_path, train=500, valid=60)
    folder = tmp_path / "run"
    run_train(data, folder, *FLAGS, "--max-tokens", "32", "--max-update", "3")
    flags = (*FLAGS, "--max-tokens", "64", "--max-update", "5")
    with pytest.raises(UserInputError, match="pass --reset-dataloader once"):
        run_train(data, folder, *flags)
    resumed = run_train(data, folder, *flags, "--reset-dataloader")
    assert resumed["extra_state"]["train_iterator"]["iterations_in_epoch"] == 4


#: Options that start from a checkpoint of another folder, with changed options.
OTHER_BATCHES = [
    ("--restore-file", "--tokens-per-sample 8"),
    ("--restore-file", "--sample-break-mode eos"),
    ("--continue-once", "--seed 6"),
]


@pytest.mark.ci
def test_other_batches_of_another_folder_need_new_epoch(tmp_path):
    torch.manual_seed(1)
    data = write_corpus(tmp_path, train=500, valid=60)
    flags = (*FLAGS, "--max-tokens", "32", "--max-update")
    run_train(data, tmp_path / "first", *flags, "3")
    start = str(tmp_path / "first" / "checkpoint_last.pt")
    for option, change in OTHER_BATCHES:
        with pytest.raises(UserInputError, match=f"{change} would change the batches"):
            run_train(data, tmp_path / "second", *flags, "5", option, start, *change.split())


@pytest.mark.ci
@pytest.mark.parametrize("task", ["language_modeling", "segment_language_modeling"])
def test_other_text_needs_new_epoch(tmp_path, task):
    torch.manual_seed(1)
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        folder.mkdir()
        write_corpus(folder, train=500, valid=60)
    flags = ("--task", task, "--tokens-per-sample", "16", "--max-tokens", "32", "--max-update")
    run = tmp_path / "run"
    copy = tmp_path / "copy"
    state = run_train(folders[0], run, *flags, "3")
    assert state["extra_state"]["train_iterator"]["iterations_in_epoch"] > 0
    shutil.copytree(folders[0], copy)
    run_train(copy, run, *flags, "4")
    before = (run / "checkpoint_last.pt").read_bytes()
    with pytest.raises(UserInputError, match=f"other training data than {folders[1]}"):
        run_train(folders[1], run, *flags, "5")
    assert (run / "checkpoint_last.pt").read_bytes() == before
    run_train(folders[1], run, *flags, "5", "--reset-dataloader")

    ended = tmp_path / "ended"
    run_train(folders[0], ended, *flags, "0", "--max-epoch", "1")
    run_train(folders[1], ended, *flags, "0", "--max-epoch", "2")
