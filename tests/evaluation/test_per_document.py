"""Losses of each document, and equal sets of scored tokens at all lengths and strides."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch
from conftest import small_dictionary
from fairseq import checkpoint_utils
from hypothesis import given
from hypothesis import strategies as st

from alibi_fairseq.cli import main
from alibi_fairseq.errors import UserInputError
from alibi_fairseq.evaluation.config import SweepConfig
from alibi_fairseq.evaluation.documents import find_document_starts
from alibi_fairseq.evaluation.split import Split, load_dictionary, load_split
from alibi_fairseq.evaluation.sweep import Sweep
from alibi_fairseq.evaluation.text_size import TextSize
from alibi_fairseq.evaluation.windows import plan_windows, select_spans, share_start
from alibi_fairseq.results.data_folder import DataFolder
from alibi_fairseq.results.file import load

STARTS = [0, 120, 240, 260]


@pytest.fixture(scope="module")
def data(trained, tmp_path_factory):
    folder = tmp_path_factory.mktemp("documents") / "data-bin"
    shutil.copytree(trained.data, folder)
    (folder / "documents.json").write_text(json.dumps({"valid": STARTS}))
    return folder


@pytest.fixture
def documents(sweep, data):
    def run(*arguments, **changes) -> list[dict]:
        settings = {
            "data": data,
            "lengths": [16, 48],
            "strides": ["full", 4],
            "per_document": "empty-lines",
        }
        settings.update(changes)
        return sweep(*arguments, **settings)

    return run


@given(
    st.lists(st.integers(1, 60), min_size=1, max_size=5),
    st.integers(1, 20),
    st.integers(1, 20),
    st.integers(0, 30),
    st.integers(31, 50),
)
def test_spans_score_same_tokens_at_every_window(sizes, first, second, score_from, score_to):
    length = max(first, second)
    stride = min(first, second)
    starts = np.cumsum([0, *sizes[:-1]]).tolist()
    expected = {}  # start of the document by scored token
    for start, size in zip(starts, sizes):
        for position in range(score_from, min(size, score_to)):
            expected[start + position] = start
    if not expected:
        with pytest.raises(UserInputError, match="--score-from"):
            select_spans(sum(sizes), starts, score_from, score_to)
        return
    spans = select_spans(sum(sizes), starts, score_from, score_to)
    windows = plan_windows(sum(sizes), length, stride, spans)
    for plan in (windows, share_start(windows)):
        scored = []
        for window in plan:
            scored += range(window.first_scored, window.stop)
        assert scored == list(expected)
        for window in plan:
            begin = expected[window.first_scored]
            assert window.start == max(begin, window.start)
            assert window.length <= length
            full = window.first_scored - window.start >= length - stride
            assert full or window.start == begin and score_from < length - stride


@pytest.mark.parametrize(
    ("name", "length", "stride", "score_from", "overrides"),
    [
        ("alibi", 32, 1, 48, {}),
        ("alibi", 32, 16, 20, {}),
        ("alibi", 32, 5, 0, {}),
        # Windows at a start are not merged: these scores depend on the number of keys.
        ("alibi", 80, 8, 0, {"alibi_scale": "dynamic"}),
        ("alibi", 75, 30, 40, {"alibi_scale": "dynamic"}),
        ("rotary", 80, 8, 0, {"rotary_scaling": "ntk:dynamic"}),
    ],
)
def test_document_losses_match_model_scores(
    documents, trained, name, length, stride, score_from, overrides
):
    """Compare the losses with the model's own scores, window by window."""
    case = {"lengths": [length], "strides": [stride], "overrides": overrides}
    (cell,) = documents(name, **case, score_from=score_from or None, score_to=100)
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task(
        [str(trained(name))], arg_overrides=overrides
    )
    task.load_dataset("valid")
    tokens = torch.cat([line["target"] for line in task.dataset("valid")])
    inputs = torch.cat([torch.tensor([task.dictionary.eos()]), tokens[:-1]])
    ends = [*STARTS[1:], len(tokens)]
    documents_of_cell = zip(
        STARTS, ends, cell.values.document_tokens, cell.values.document_bits, strict=True
    )
    for begin, end, count, bits in documents_of_cell:
        end = min(end, begin + 100)
        nats = 0.0
        for first in range(begin + score_from, end, stride):
            start = max(begin, first - length + stride)
            stop = min(end, first + stride)
            with torch.no_grad():
                scores = model.eval()(inputs[None, start:stop])[0][0].log_softmax(1)
            chosen = torch.arange(first - start, stop - start), tokens[first:stop]
            nats -= scores[chosen].sum().item()
        assert count == max(0, end - begin - score_from)
        assert bits == pytest.approx(nats / np.log(2), abs=1e-3)
    assert cell.values.tokens == sum(cell.values.document_tokens)
    assert cell.values.loss_bits * cell.values.tokens == pytest.approx(
        sum(cell.values.document_bits)
    )


def test_documents_without_range_keep_total_loss(documents):
    whole_text = documents(out="whole", per_document=None)
    for cell, whole in zip(documents(), whole_text, strict=True):
        assert cell.values.loss_bits == pytest.approx(whole.values.loss_bits, rel=1e-12)
        assert cell.values.mean_context == whole.values.mean_context
        assert cell.values.bits_per_byte == pytest.approx(whole.values.bits_per_byte, rel=1e-12)
        assert cell.values.document_tokens[:3] == (120, 120, 20)
        assert whole.values.document_tokens == ()


def test_lengths_strides_and_memories_share_their_tokens(documents):
    cells = documents(score_from=48)
    counts = [cell.values.document_tokens for cell in cells]
    assert counts == 4 * [counts[0]]
    assert counts[0][:3] == (72, 72, 0)
    assert [cell.values.min_context for cell in cells] == [1, 13, 1, 45]
    assert len({cell.values.bytes for cell in cells}) == 1
    (with_memory,) = documents(
        "transformer-xl", "xl", lengths=[16], strides=["full"], score_from=48
    )
    assert with_memory.values.document_tokens == counts[0]
    assert with_memory.series.facts.memory_length == 24
    assert with_memory.values.loss_bits != cells[0].values.loss_bits


WORDS = {"=": 4, "a": 5, "b": 6, "end": 2}


@pytest.mark.parametrize(
    ("kind", "lines", "starts"),
    [
        ("empty-lines", ["a b end", "a end", "end", "b end", "end", "end", "a end"], [0, 6, 10]),
        ("empty-lines", ["a b end a end end", "b end end"], [0, 6]),  # an item is a document
        ("empty-lines", ["end", "a end", "end", "b end"], [0, 1, 4]),
        ("titles", ["end", "= a = end", "b end", "= = b = = end", "= b = end"], [0, 1, 13]),
        ("titles", ["a end", "= end", "b = end", "= b = end"], [0, 7]),
    ],
)
def test_document_starts_of_lines_and_titles(tmp_path, kind, lines, starts):
    token_ids = [[WORDS[word] for word in line.split()] for line in lines]
    dictionary = small_dictionary(0)
    dictionary.add_symbol("=")
    begins = np.cumsum([0, *map(len, token_ids[:-1])])
    split = Split("test", np.concatenate(token_ids), begins, dictionary, TextSize())
    assert find_document_starts(DataFolder.open(tmp_path), split, kind) == starts


def test_eval_per_document_on_command_line(trained, data, tmp_path):
    out = tmp_path / "out.json"
    command = ["eval", str(data), "--path", str(trained("alibi")), "--lengths", "16,32"]
    command += ["--out", str(out)]
    assert main([*command, "--per-document", "--score-from", "32"]) == 0
    for cell in load(out).results:
        assert (cell.case.separator, cell.case.score_from) == ("empty-lines", 32)
    assert (
        f'"document_tokens": [{", ".join(map(str, cell.values.document_tokens))}]'
        in out.read_text()
    )
    in_range = load(out).results
    assert main([*command, "--per-document", "--score-from", "16"]) == 0
    records = load(out).results
    assert records[:2] == in_range
    assert [cell.case.score_from for cell in records] == [32, 32, 16, 16]


def test_sweep_is_the_same_with_splits_that_were_read_before(data):
    """An experiment doesn't read them, and an evaluation has read them."""
    splits = {"valid": load_split(DataFolder.open(data), "valid", load_dictionary(data))}
    config = SweepConfig(lengths=[16], per_document="empty-lines", score_to=9)
    known = Sweep.of_data(config, DataFolder.open(data), splits=splits)
    assert known == Sweep.of_data(config, DataFolder.open(data))
    assert known.cases[0].documents is not None
    assert known.identities["valid"].starts == STARTS


def test_changed_boundaries_replace_the_losses_of_documents(documents, data, tmp_path):
    folder = shutil.copytree(data, tmp_path / "data")
    records = documents(data=folder)
    assert documents(data=folder) == records
    (folder / "documents.json").write_text(json.dumps({"valid": [0, 50]}))
    changed = documents(data=folder)
    assert [record.values.loss_bits for record in changed] == [
        record.values.loss_bits for record in records
    ]
    assert all(record.values.document_tokens[0] == 50 for record in changed)
    assert load(tmp_path / "results.json").results == changed


@pytest.mark.parametrize(
    "content",
    [
        '{"test": [0, 8, 5]}',
        '{"test": [0, 8, 8]}',
        '{"test": [0, 20]}',
        '{"test": [0]}',
        '{"test": [5, 8]}',
        '{"test": [0, 2.5]}',
        '{"test": [0, 2.0]}',
        '{"test": [0, true]}',
        '{"test": [0, "8"]}',
        '{"test": 5}',
        '{"test": [0, 8], "valid": null}',
        "[1]",
    ],
)
def test_invalid_documents_file_is_rejected(tmp_path, content):
    (tmp_path / "documents.json").write_text(content)
    split = Split("test", np.full(20, 5), np.array([0]), small_dictionary(3), TextSize())
    with pytest.raises(UserInputError, match=r"documents\.json"):
        find_document_starts(DataFolder.open(tmp_path), split, "empty-lines")


def test_documents_file_without_the_split_is_ignored(tmp_path):
    (tmp_path / "documents.json").write_text('{"valid": [0, 9]}')
    tokens = np.array([5, 2, 2, 5, 2])
    split = Split("test", tokens, np.array([0, 2, 3]), small_dictionary(3), TextSize())
    assert find_document_starts(DataFolder.open(tmp_path), split, "empty-lines") == [0, 3]
