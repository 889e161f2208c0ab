"""Tests of probes: sequences, accuracy against a naive count, and the report."""

from typing import get_args

import numpy as np
import pytest
import torch
from fairseq_runs import write_corpus
from fakes import TINY, in_this_process
from results_documents import cells_of

from alibi_fairseq.cli import main
from alibi_fairseq.data import probe_data
from alibi_fairseq.data.probe_data import load_probe, prepare_probe
from alibi_fairseq.data.probes import DEPTHS, PROBES, ProbeName, RecallProbe
from alibi_fairseq.errors import UserInputError
from alibi_fairseq.evaluation.checkpoint import load_checkpoint
from alibi_fairseq.evaluation.probe_evaluator import correct_symbols
from alibi_fairseq.evaluation.split import load_dictionary
from alibi_fairseq.experiment import child_process
from alibi_fairseq.results.file import load
from alibi_fairseq.results.file_names import find_results_files

COPY = PROBES["copy"]
PASSKEY = PROBES["passkey"]
MQAR = PROBES["mqar"]
OVERWRITE = PROBES["overwrite"]
MARKER = 50
TEXT = np.arange(1000, 3000)


def generate(probe, seed=3, count=40, length=128, **arguments) -> list[list[int]]:
    """Return sequences of a probe whose marker is MARKER, in TEXT if it is a probe in text."""
    text = TEXT if probe.in_text else None
    rng = np.random.default_rng(seed)
    return probe.sequences(rng, MARKER, text, count, length, **arguments).tolist()


def markers_of(row: list[int]) -> list[int]:
    return [position for position, token in enumerate(row) if token == MARKER]


def pairs_of(row: list[int]) -> list[list[tuple[int, int]]]:
    """Return the pairs of each block of ``mqar``."""
    blocks = []
    for marker in markers_of(row):
        symbols = row[marker + 1 : marker + MQAR.block_size]
        blocks.append(list(zip(symbols[::2], symbols[1::2])))
    return blocks


def recalled(row: list[int], position: int) -> int:
    """Return the token after the last earlier occurrence of the token before a position."""
    key = row[position - 1]
    earlier = [index for index in range(position - 1) if row[index] == key]
    return row[earlier[-1] + 1]


@pytest.fixture
def few_sequences(monkeypatch):
    monkeypatch.setattr(probe_data, "TOKENS", 64 * 64)
    monkeypatch.setattr(probe_data, "HELD_OUT", 8)


@pytest.mark.parametrize("depth", [0.0, 0.5, 1.0, None])
@pytest.mark.parametrize("probe", [COPY, PASSKEY], ids=lambda probe: probe.name)
def test_sequence_repeats_string_after_gap(probe, depth):
    text = np.arange(1000, 1400)
    first = 50
    length = 128
    filling = text if probe.in_text else None
    rows = probe.sequences(np.random.default_rng(3), first, filling, 40, length, depth)
    assert rows.shape == (40, length)
    assert (rows[:, -1] == 2).all()
    positions = set()
    for row in rows.tolist():
        before, last = [position for position, token in enumerate(row) if token == first]
        string = row[last + 1 : -1]
        assert row[before + 1 : before + 1 + probe.size] == string
        assert len(set(string)) == probe.size
        assert all(first + 2 <= symbol < first + 2 + probe.symbols for symbol in string)
        rest = row[:before] + row[before + 1 + probe.size : last]
        if probe.in_text:  # contiguous text, cut at the key
            assert rest == list(range(rest[0], rest[0] + len(rest)))
        else:
            assert set(rest) == {first + 1}
        if depth is not None:
            assert last - before - 1 - probe.size == probe.gap(length, depth)
            if depth == 0:
                assert before == 0
        positions.add(before)
    if depth is None:
        assert len(positions) > 10
    else:
        assert len(positions) == 1


def test_training_sequence_repeats_string_often():
    rows = COPY.sequences(np.random.default_rng(3), 4, None, 40, 64, copies=5)
    for row in rows.tolist():
        marks = [position for position, token in enumerate(row) if token == 4]
        strings = {tuple(row[mark + 1 : mark + 9]) for mark in marks}
        assert len(marks) == 5
        assert len(strings) == 1
        assert row.count(5) == 64 - 1 - 5 * 9


@pytest.mark.parametrize("depth", [0.0, 0.5, 1.0, None])
def test_mqar_is_solved_by_recall(depth):
    positions = MQAR.answer_positions(128)
    gaps = set()
    for row in generate(MQAR, depth=depth):
        first, last = pairs_of(row)
        values = [value for _, value in last]
        assert [row[position] for position in positions] == values
        assert [recalled(row, position) for position in positions] == values
        assert sorted(first) == sorted(last)
        assert row[-1] == 2
        keys = [key - MARKER - 2 for key, _ in first]
        assert len(set(keys)) == MQAR.pairs
        assert set(keys) <= set(range(MQAR.keys))
        offset = MARKER + 2 + MQAR.keys
        assert all(0 <= value - offset < MQAR.symbols for value in values)
        assert row.count(MARKER + 1) == 128 - 1 - 2 * (1 + 2 * MQAR.pairs)
        earlier, later = markers_of(row)
        gaps.add(row[earlier:later].count(MARKER + 1))
    if depth is None:
        assert len(gaps) > 10
    else:
        assert gaps == {MQAR.gap(128, depth)}


def test_mqar_asks_in_new_order():
    blocks = [pairs_of(row) for row in generate(MQAR, count=200)]
    same_order = sum(first == last for first, last in blocks)
    assert 0 < same_order < 30  # 1 of 24 orders


def test_mqar_training_sequence_has_all_pairs_in_each_block():
    for row in generate(MQAR, length=64, copies=MQAR.copies):
        blocks = pairs_of(row)
        assert len(blocks) == MQAR.copies
        assert all(sorted(pairs) == sorted(blocks[0]) for pairs in blocks)


def test_mqar_chance_is_accuracy_of_any_pair():
    """Compare with the fraction of a sequence's values that are the answer."""
    correct = []
    for row in generate(MQAR, count=4000):
        first, last = pairs_of(row)
        values = [value for _, value in first]
        correct += [values.count(value) / len(values) for _, value in last]
    standard_error = np.std(correct) / 4000**0.5
    assert abs(np.mean(correct) - MQAR.chance) < 4 * standard_error


@pytest.mark.parametrize("depth", [0.0, 0.5, None])
@pytest.mark.parametrize("copies", [2, 5])
def test_overwrite_asks_for_the_last_value_of_each_key(depth, copies):
    """Replay each sequence with a dictionary, which keeps the last value of a key."""
    stale = 0
    for row in generate(OVERWRITE, depth=depth, copies=copies):
        last_values: dict[int, int] = {}
        for number, marker in enumerate(markers_of(row)):
            symbols = row[marker + 1 : marker + OVERWRITE.block_size]
            pairs = list(zip(symbols[::2], symbols[1::2], strict=True))
            read, written = pairs[: OVERWRITE.pairs], pairs[OVERWRITE.pairs :]
            assert dict(read).keys() == dict(written).keys()
            if number:
                assert dict(read) == last_values
            first_values = dict(read)
            last_values = dict(written)
            stale += first_values != last_values
        answers = [row[position] for position in OVERWRITE.answer_positions(128)]
        assert answers == [value for _, value in read]
    assert stale > 40  # the values do change


def test_type_of_names_has_every_probe():
    assert get_args(ProbeName) == tuple(PROBES)


@pytest.mark.parametrize("probe", PROBES.values(), ids=lambda probe: probe.name)
def test_seed_determines_sequences(probe):
    assert generate(probe, seed=3) == generate(probe, seed=3) != generate(probe, seed=4)


@pytest.mark.parametrize("probe", [COPY, MQAR], ids=lambda probe: probe.name)
def test_prepared_probe_is_loaded(few_sequences, tmp_path, probe):
    prepare_probe(probe, 64, None, tmp_path / "data")
    loaded, marker, text = load_probe(tmp_path / "data")
    assert loaded == probe
    assert text is None
    assert load_dictionary(tmp_path / "data")[marker] == "<probe:mark>"


def test_probe_in_another_held_out_text_is_rejected(few_sequences, tmp_path):
    text = tmp_path / "text"
    text.mkdir()
    write_corpus(text, train=1000, valid=500)
    prepare_probe(PASSKEY, 16, text, tmp_path / "data")
    prepare_probe(PASSKEY, 16, text, tmp_path / "data")
    write_corpus(text, valid=600)
    with pytest.raises(UserInputError, match="not an empty folder"):
        prepare_probe(PASSKEY, 16, text, tmp_path / "data")


def test_training_blocks_are_sequences(few_sequences, tmp_path):
    from fairseq.data import TokenBlockDataset, data_utils

    prepare_probe(COPY, 64, None, tmp_path / "data")
    lines = data_utils.load_indexed_dataset(str(tmp_path / "data" / "train"))
    blocks = TokenBlockDataset(lines, lines.sizes, 64, pad=1, eos=2, break_mode="none")
    assert len(blocks) == len(lines) == 64
    assert all((blocks[n] == lines[n]).all() for n in range(64))
    assert len(load_dictionary(tmp_path / "data")) == 4 + 2 + COPY.symbols
    before = (tmp_path / "data" / "train.bin").stat().st_mtime_ns
    prepare_probe(COPY, 64, None, tmp_path / "data")
    assert (tmp_path / "data" / "train.bin").stat().st_mtime_ns == before
    prepare_probe(COPY, 64, None, tmp_path / "again")
    same = [(tmp_path / name / "train.bin").read_bytes() for name in ("data", "again")]
    assert same[0] == same[1]


@pytest.mark.ci
def test_probe_end_to_end_and_rerun(few_sequences, tmp_path, capsys, monkeypatch):
    """Learned positions are tested past their table, and completed runs are not repeated."""
    monkeypatch.setattr(child_process, "execute_command", in_this_process)
    out = tmp_path / "out"
    words = ["compare", "--probes", "copy", "--methods", "learned", "--updates", "2"]
    words += ["--train-lengths", "48", "--tokens-per-update", "192", "--train-flags", TINY]
    words += ["--parallel", "1", "--out", str(out)]
    assert main([*words, "--dry-run"]) == 0
    assert "--lengths 48,96,192,384,768" in capsys.readouterr().out
    assert main(words) == 0
    assert "none has learned the task" in capsys.readouterr().out
    document = load(out / "results.json")
    assert {result.case.kind for result in document.results} == {"probe"}
    assert {result.case.corpus for result in document.results} == {"copy"}
    measured = [(record.case.length, record.case.depth) for record in document.results]
    assert measured == [(48 * n, depth) for n in (1, 2, 4, 8, 16) for depth in DEPTHS]
    assert (out / "figure.svg").stat().st_size > 1000
    assert (out / "table.md").is_file()
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.pt")}
    assert main(words) == 0
    assert "evaluating" not in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*.pt")} == before

    data = out / "copy" / "data-48"
    checkpoint = next(out.glob("copy/*/checkpoint_last.pt"))
    check_accuracy(data, checkpoint)
    beyond = ["eval", str(data), "--path", str(checkpoint), "--lengths", "96"]
    assert main([*beyond, "--out", str(tmp_path / "x.json")]) == 2
    assert "clamp_learned_positions" in capsys.readouterr().err


def check_accuracy(data, checkpoint):
    """Compare the accuracy with a full forward pass per symbol."""
    model = load_checkpoint(checkpoint, data)
    small = RecallProbe("small", symbols=16, copies=2, in_text=False, keys=16, pairs=4)
    for probe in (COPY, small):
        rows = probe.sequences(np.random.default_rng(0), 4, None, 6, 48, 0.5)
        positions = probe.answer_positions(48)
        correct = correct_symbols(model, torch.from_numpy(rows), positions)
        for row, correct_of_row in zip(rows.tolist(), correct.tolist()):
            for n, position in enumerate(positions):
                scores, _ = model.decoder(torch.tensor([[2, *row[:position]]]))
                expected = int(scores[0, -1].argmax()) == row[position]
                assert correct_of_row[n] == expected


@pytest.mark.ci
def test_table_shows_probes_with_perplexity(few_sequences, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(child_process, "execute_command", in_this_process)
    data = tmp_path / "data"
    data.mkdir()
    write_corpus(data, train=1000, valid=500)
    words = f"compare {data} --methods alibi --probes passkey --updates 2".split()
    words += ["--train-lengths", "16", "--lengths", "16", "--tokens-per-update", "128"]
    words += ["--parallel", "1", "--train-flags", TINY, "--out", str(tmp_path / "out")]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert "Probe passkey: tested at 1, 2, 4, 8, 16 times the training length; --lengths" in printed
    assert "## passkey" in printed
    header = cells_of((tmp_path / "out" / "table.md").read_text())[0]
    assert header == ["trained ↓ evaluated at →", "16"]
    files = [load(path) for path in find_results_files(tmp_path / "out")]
    kinds = [file.results[0].case.kind for file in files]
    assert sorted(kinds) == ["probe", "text"]


def test_too_short_filler_is_rejected_first(few_sequences, data_bin, tmp_path, capsys):
    words = ["compare", str(data_bin), "--probes", "passkey", "--train-lengths", "64"]
    assert main([*words, "--out", str(tmp_path / "out")]) == 2
    assert "Provide a longer text" in capsys.readouterr().err
    assert not list(tmp_path.rglob("*.pt"))
