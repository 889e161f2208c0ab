"""Training that is resumed in any epoch reads the same batches."""

from __future__ import annotations

import pytest
import torch
from fairseq.data import RawLabelDataset
from fairseq.tasks import FairseqTask
from fairseq_runs import run_train, same_training_state, write_corpus

FLAGS = ("--task", "language_modeling", "--tokens-per-sample", "16", "--max-tokens", "64")
LAST = 13


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    """Return two data folders, each with eight updates, which fairseq reads in turn by epoch."""
    torch.manual_seed(1)
    folders = [tmp_path_factory.mktemp("data") for _ in range(2)]
    return [str(write_corpus(folder, train=500, valid=60)) for folder in folders]


def train(corpora, folder, updates: int) -> dict:
    return run_train(":".join(corpora), folder, *FLAGS, "--max-update", str(updates))


@pytest.fixture(scope="module")
def whole(corpora, tmp_path_factory):
    """Return the last checkpoints of uninterrupted runs, by number of folders."""
    return {
        folders: train(corpora[:folders], tmp_path_factory.mktemp("whole"), LAST)
        for folders in (1, 2)
    }


@pytest.mark.ci
@pytest.mark.parametrize(("folders", "stop"), [(1, 8), (1, 11), (2, 11)])
def test_training_resumes_in_later_epoch(corpora, whole, tmp_path, folders, stop):
    train(corpora[:folders], tmp_path, stop)
    resumed = train(corpora[:folders], tmp_path, LAST)
    assert same_training_state(resumed, whole[folders])


def test_rerun_is_bitwise_identical(corpora, whole, tmp_path):
    """Compare two runs with the same seed on the same machine."""
    assert same_training_state(train(corpora[:1], tmp_path, LAST), whole[1])


class Numbers(RawLabelDataset):
    """Numbers of one token each."""

    def num_tokens(self, index):
        return 1


def batches_of_one():
    """Return fairseq's iterator over eight batches."""
    return FairseqTask(None).get_batch_iterator(Numbers(range(8)), max_sentences=1, seed=1)


def test_epochs_after_curriculum_are_shuffled():
    """Compare ``--curriculum 1`` with and without resuming in the second epoch."""
    epochs = batches_of_one()
    assert [int(batch) for batch in epochs.next_epoch_itr(shuffle=False)] == list(range(8))
    second = epochs.next_epoch_itr(shuffle=True)
    read = [int(next(second)) for _ in range(4)]
    position = epochs.state_dict()
    whole = read + [int(batch) for batch in second]
    assert sorted(whole) == list(range(8)) != whole

    resumed = batches_of_one()
    resumed.load_state_dict(position)
    assert [int(batch) for batch in resumed.next_epoch_itr(shuffle=True)] == whole[4:]
