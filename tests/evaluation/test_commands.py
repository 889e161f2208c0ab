"""Command eval: its printed tables and its rejection of invalid options."""

from __future__ import annotations

import pytest
from results_documents import cells_of, evaluation_record, results_of

from alibi_fairseq.cli import main
from alibi_fairseq.reporting.evaluation_output import context_table
from alibi_fairseq.results.file import load


def test_eval_prints_table_of_records(trained, tmp_path, capsys):
    command = ["eval", str(trained.data), "--path", str(trained("alibi")), "--device", "cpu"]
    command += ["--lengths", "16,48", "--strides", "full,4", "--subset", "valid,test"]
    command += ["--effective-context", "50"]
    assert main([*command, "--out", str(tmp_path / "results.json")]) == 0
    cells = load(tmp_path / "results.json").results
    measured = [(cell.case.split, cell.case.length, cell.case.stride) for cell in cells]
    assert measured == [
        ("valid", 16, 16),
        ("valid", 16, 4),
        ("valid", 48, 48),
        ("valid", 48, 4),
        ("test", 16, 16),
        ("test", 16, 4),
        ("test", 48, 48),
        ("test", 48, 4),
    ]
    printed = capsys.readouterr()
    assert "100%" in printed.err
    table = printed.out.splitlines()
    assert "perplexity" in table[0]
    assert "mean ctx" in table[0]
    contexts = printed.out.split("\n\n")[1].splitlines()[2:]
    assert [line.split()[-2] for line in contexts] == 4 * ["16"]
    for cell, line in zip(cells, table[2 : 2 + len(cells)], strict=True):
        assert f"{cell.values.perplexity:.2f}" in line
        assert f"{cell.values.mean_context:.1f}" in line


def test_eval_prints_loss_by_position(trained, tmp_path, capsys):
    command = ["eval", str(trained.data), "--path", str(trained("alibi")), "--device", "cpu"]
    command += ["--lengths", "16,48", "--strides", "full,4", "--by-position"]
    out = tmp_path / "results.json"
    assert main([*command, "--out", str(out)]) == 0
    record = load(out).results[2]
    assert record.case.length == record.case.stride == 48
    rows = cells_of(capsys.readouterr().out.split("\n\n")[2])[1:]
    assert rows[0][0] == "1"
    assert rows[-1][0] == "33–48"
    for row, tokens, bits in zip(
        rows, record.values.position_tokens, record.values.position_bits, strict=True
    ):
        assert row[1:] == [f"{tokens:,}", f"{bits / tokens:.3f}"]
    command[command.index("16,48")] = "90000"
    assert main([*command, "--out", str(tmp_path / "long.json")]) == 0
    assert "No loss by position" in capsys.readouterr().out


@pytest.mark.parametrize(("percent", "expected"), [(0, 512), (1, 128), (5, 64), (100, 16)])
def test_effective_context_is_shortest_window_in_tolerance(percent, expected):
    losses = {16: 7.0, 64: 4.15, 128: 4.03, 256: 4.01, 512: 4.0}
    model = {"checkpoint": "run/model.pt", "stride": 8}
    cells = [evaluation_record(2**loss, length=length, **model) for length, loss in losses.items()]
    results = results_of(*cells[1:], *cells[:1])
    line = context_table(results, percent, [8]).splitlines()[-1]
    assert line.split()[-2] == str(expected)


def test_effective_context_of_each_requested_stride():
    cases = {(64, 64): 5.0, (128, 64): 5.0, (128, 128): 4.0}
    cells = [
        evaluation_record(2**loss, length=length, stride=stride, checkpoint="run/model.pt")
        for (length, stride), loss in cases.items()
    ]
    rows = context_table(results_of(*cells), 1.0, ["full", 64]).splitlines()[2:]
    assert [row.split()[-4:-1:2] for row in rows] == [["full", "128"], ["64", "64"]]
