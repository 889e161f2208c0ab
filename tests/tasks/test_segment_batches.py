"""Batches of the segment task from a real binarized corpus."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from fairseq import options, tasks
from fairseq.data import data_utils
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq_runs import write_corpus

from alibi_fairseq.errors import UserInputError
from alibi_fairseq.plugin.segment_language_modeling import rows_per_process
from alibi_fairseq.plugin.segment_memory import Segment, SegmentMemory

TOKENS = 211
EOS = 2
PAD = 1


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    torch.manual_seed(1)
    return write_corpus(tmp_path_factory.mktemp("data"), test=TOKENS)


def task_for(corpus, length: int, *flags: str):
    """Set up the task of a ``fairseq-eval-lm`` command and load the corpus."""
    command = [str(corpus), "--path", "none", "--task", "segment_language_modeling"]
    command += ["--tokens-per-sample", str(length), *flags]
    arguments = options.parse_args_and_arch(options.get_eval_lm_parser(), command)
    task = tasks.setup_task(convert_namespace_to_omegaconf(arguments).task)
    task.load_dataset("test")
    return task


def text_of(corpus, task) -> torch.Tensor:
    """Return the tokens of the corpus as fairseq reads them, line after line."""
    lines = data_utils.load_indexed_dataset(str(corpus / "test"), task.dictionary, "mmap")
    assert len(lines) > 15
    return torch.cat([lines[number] for number in range(len(lines))]).long()


def read_epoch(task, **options) -> list[dict]:
    """Return the batches of an epoch with two rows each."""
    iterator = task.get_batch_iterator(task.dataset("test"), max_sentences=2, **options)
    return list(iterator.next_epoch_itr())


#: Rows of a batch, tokens of a segment, and processes.
PLANS = [(1, 16, 1), (1, 500, 1), (4, 16, 1), (3, 7, 2), (5, 1, 3), (500, 3, 1), (2, 53, 2)]


@pytest.mark.parametrize(("rows", "length", "processes"), [*PLANS, (1, 105, 2)])
def test_segments_predict_every_token_once(corpus, rows, length, processes):
    task = task_for(corpus, length)
    text = text_of(corpus, task)
    previous_tokens = torch.cat([torch.tensor([EOS]), text[:-1]])
    pairs_by_row: dict[int, list] = {}  # inputs and targets, (tokens, 2), of each segment
    steps = set()
    targets_by_step = Counter()
    for shard in range(processes):
        batches = task.eval_lm_dataloader(
            task.dataset("test"), batch_size=rows, num_shards=processes, shard_id=shard
        )
        steps.add(len(batches))
        for step, batch in enumerate(batches):
            targets_by_step[step] += batch["ntokens"]
            inputs = batch["net_input"]["src_tokens"]
            targets = batch["target"]
            assert inputs.shape == targets.shape
            assert batch["ntokens"] == int(targets.ne(PAD).sum())
            assert inputs.ne(PAD).equal(targets.ne(PAD))
            pairs = torch.stack([inputs, targets], dim=2)
            for row, row_pairs in zip(batch["id"].tolist(), pairs, strict=True):
                segments = pairs_by_row.setdefault(row, [])
                segments.append(row_pairs[row_pairs[:, 1] != PAD])
    assert len(steps) == 1  # otherwise, a process would wait for another one
    assert all(targets_by_step.values())
    rows_read = sorted(pairs_by_row)
    assert rows_read == list(range(len(rows_read)))
    texts = [torch.cat(pairs_by_row[row]) for row in rows_read]
    lengths = [len(row_text) for row_text in texts]
    assert max(lengths) - min(lengths) <= 1
    all_pairs = torch.cat(texts)
    assert torch.equal(all_pairs[:, 1], text)
    assert torch.equal(all_pairs[:, 0], previous_tokens)


def test_batches_carry_segment_and_memory(corpus):
    task = task_for(corpus, 16)
    segments = [batch["net_input"]["segment"] for batch in read_epoch(task)]
    assert [segment.number for segment in segments] == list(range(7))
    assert len({id(segment.memory) for segment in segments}) == 1
    next_segment = read_epoch(task)[0]["net_input"]["segment"]
    assert next_segment.memory is not segments[0].memory


def test_dummy_batch_has_no_memory(corpus):
    task = task_for(corpus, 16)
    iterator = task.get_batch_iterator(task.dataset("test"), max_sentences=2)
    assert "segment" not in iterator.first_batch["net_input"]


def test_worker_process_loads_same_batches(corpus):
    task = task_for(corpus, 16)
    expected_batches = read_epoch(task, num_workers=0)
    batches = read_epoch(task, num_workers=1)
    for batch, expected in zip(batches, expected_batches, strict=True):
        assert torch.equal(batch["target"], expected["target"])
    assert len({id(batch["net_input"]["segment"].memory) for batch in batches}) == 1


@pytest.mark.ci
def test_task_rejects_options_that_reorder_text(corpus):
    for flags in (["--sample-break-mode", "eos"], ["--add-bos-token"], ["--past-target"]):
        with pytest.raises(UserInputError, match=f"Remove {flags[0]}"):
            task_for(corpus, 16, *flags)
    task = task_for(corpus, 16)
    with pytest.raises(UserInputError, match="Remove --context-window"):
        task.eval_lm_dataloader(task.dataset("test"), batch_size=1, context_window=8)


def test_missing_split_raises_file_not_found(corpus):
    with pytest.raises(FileNotFoundError, match="nosuch"):
        task_for(corpus, 16).load_dataset("nosuch")


def test_nonconsecutive_segment_has_no_past():
    memory = SegmentMemory()
    first, second, third = [Segment(number, memory) for number in range(3)]
    first_states = [torch.zeros(1)]
    second_states = [torch.ones(1)]
    assert first.past() is None
    first.leave(first_states)
    assert second.past() is first_states
    assert third.past() is None
    second.leave(second_states)
    assert third.past() is second_states
    assert second.past() is first_states  # as when activations are recomputed
    assert first.past() is None  # a new pass over the text starts without memory


def test_rows_per_process_fit_batch():
    assert rows_per_process(64, max_tokens=9216, max_sentences=None, multiple=1) == 144
    assert rows_per_process(64, max_tokens=9216, max_sentences=5, multiple=1) == 5
    assert rows_per_process(64, max_tokens=None, max_sentences=7, multiple=1) == 7
    assert rows_per_process(64, max_tokens=1216, max_sentences=None, multiple=8) == 16
    assert rows_per_process(64, max_tokens=256, max_sentences=None, multiple=8) == 4
    with pytest.raises(UserInputError, match="--max-tokens 63 is less than one row"):
        rows_per_process(64, max_tokens=63, max_sentences=None, multiple=1)


def test_same_rows_resume_on_other_processes(corpus):
    """Each process reads the rest of its rows, with their memory."""
    task = task_for(corpus, 16)
    stream = task.dataset("test")
    whole = task.get_batch_iterator(stream, max_sentences=4)
    batches = whole.next_epoch_itr()
    next(batches)
    next(batches)
    states = torch.randn(2, 5, 4, 3)  # layers, inputs, rows, width
    position = {**whole.state_dict(), "memory": {"segment": 1, "states": {0: [*states]}}}
    remaining = [batch["target"] for batch in batches]

    for process in range(2):
        part = task.get_batch_iterator(stream, max_sentences=2, num_shards=2, shard_id=process)
        part.load_state_dict(position)
        own = slice(2 * process, 2 * process + 2)
        read = list(part.next_epoch_itr())
        for batch, targets in zip(read, remaining, strict=True):
            assert torch.equal(batch["target"], targets[own])
        past = read[0]["net_input"]["segment"].past()
        assert torch.equal(torch.stack(past), states[:, :, own])


@pytest.mark.parametrize("saved", [1, 2])
def test_memory_of_two_processes_is_restored_on_one_if_both_saved_it(saved):
    states = torch.randn(2, 5, 4, 3)
    both = {0: [*states[:, :, :2]], 1: [*states[:, :, 2:]]}
    memory = SegmentMemory()
    memory.load_state_dict(
        {"segment": 1, "states": {process: both[process] for process in range(saved)}}, range(4)
    )
    past = Segment(2, memory).past()
    if saved == 2:
        assert torch.equal(torch.stack(past), states)
    else:
        assert past is None
