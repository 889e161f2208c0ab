"""Training that is resumed in any epoch reads the same batches."""

from __future__ import annotations

import pytest
import torch
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
