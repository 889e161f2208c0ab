"""``--hours``: what fits, the same for every method, from what a few commands took."""

import json
import re
import shutil
from pathlib import Path

import pytest
from results_documents import document, evaluation_cell

from alibi_fairseq.compare import budget
from alibi_fairseq.compare.budget import makespan, plan, rounded
from alibi_fairseq.compare.cell import Cell
from alibi_fairseq.compare.cost import Cost, model_of
from alibi_fairseq.compare.description import as_mapping, from_mapping
from alibi_fairseq.compare.engine import ComparisonWork
from alibi_fairseq.errors import BadInput
from alibi_fairseq.launcher import process
from alibi_fairseq.results.schema import save_document

#: Seconds per update of the stand-ins; ALiBi's is measured as 128 tokens at 640 tokens/s.
UPDATE = {"alibi": 0.2, "sinusoidal": 0.1}


def planned(cells, seconds, **more):
    """With so many seconds left for the cells."""
    spent = more.get("spent", 0.0)
    return plan(cells, costs_of(cells), (seconds + spent) / 3600 / budget.PLANNED, **more)


def comparison(data, **changes):
    corpora = [{"name": "toy", "data": str(data)}]
    values = {"methods": list(UPDATE), "train_lengths": 16, "eval_lengths": [16, 32]}
    values |= {"corpora": corpora, "tokens_per_update": 128, "hours": 1, **changes}
    return from_mapping(values)


def cells_of(what, data, folder):
    return [
        Cell(what, corpus, method, length, seed, data, folder / f"{method}-{length}-{seed}")
        for corpus, method, length, seed in what.cells()
    ]


def costs_of(cells):
    return {model_of(c): Cost(10.0, UPDATE[c.method], 0.0, 5.0) for c in cells}


def test_the_largest_number_of_updates_that_fits(data_bin, tmp_path):
    cells = cells_of(comparison(data_bin, seeds=[1, 2]), data_bin, tmp_path)
    # Both seeds of both methods: 4 · 15 s and 0.6 s per update.
    found = planned(cells, 60 + 0.6 * 5000.5, parallel=1)
    assert (found.updates, found.left_out) == (5000, ())
    assert found.seconds == pytest.approx(3060)
    # Two at a time: seed 1 of both methods, then seed 2 where a place is free first.
    assert planned(cells, 30 + 0.3 * 5000.5, parallel=2).updates == 5000


def test_what_does_not_fit_is_left_out_for_all_methods_alike(data_bin, tmp_path):
    what = comparison(data_bin, seeds=[1, 2, 3])
    cells = cells_of(what, data_bin, tmp_path)
    one_seed = 2 * 15 + 0.3 * budget.LEAST
    found = planned(cells, 2.5 * one_seed, parallel=1)
    assert found.updates == budget.LEAST and found.left_out == ((3, "toy", 16),)
    assert [found.keeps(cell) for cell in cells] == [cell.seed < 3 for cell in cells]
    said = " ".join(found.sentences())
    assert "Left out: seed 3 of toy, trained at 16, all methods." in said


def test_the_hours_that_an_error_asks_for_are_enough(data_bin, tmp_path):
    cells = cells_of(comparison(data_bin), data_bin, tmp_path)
    with pytest.raises(BadInput, match="100 updates of every method take about") as error:
        planned(cells, 50, parallel=1, spent=240)
    hours = float(re.search(r"about (\S+) hours", str(error.value))[1])
    # Also for a machine that is measured 5 % slower the next time.
    assert plan(cells, costs_of(cells), hours, parallel=1, spent=252).updates >= budget.LEAST
    assert hours < 1.2 * (60 + 240) / 3600 / budget.PLANNED


def test_added_methods_keep_the_updates_of_the_models_that_are_there(data_bin, tmp_path):
    cells = cells_of(comparison(data_bin), data_bin, tmp_path)
    assert plan(cells, costs_of(cells), 1e3, parallel=1, updates=700).updates == 700


def test_validation_counts_and_numbers_are_round():
    assert Cost(10.0, 0.5, 2.0, 5.0).seconds(1000, epoch=500.0) == 10 + 500 + 13 * 2 + 5
    assert [rounded(n) for n in (107, 1299, 98765)] == [100, 1200, 98000]
    assert makespan([3, 3, 3], parallel=2) == 6


class Commands:
    """Stands for ``launcher.process.run``: leaves a log and results."""

    def __init__(self):
        self.ran = []

    def __call__(self, words, *arguments, log=None, **more):
        self.ran.append(words)
        verb = words[3]
        if verb == "train":
            method = words[words.index("--position-method") + 1]
            for number in range(6):
                speed = 1.0 if number < 2 else 128 / UPDATE[method]
                said = {"wps": str(speed), "num_updates": str(number + 1), "loss": "5"}
                log.write(f"2026-01-01 | INFO | train_inner | {json.dumps(said)}\n")
            log.flush()
        else:
            out = words[len(words) - words[::-1].index("--out")]
            lengths = map(int, words[words.index("--lengths") + 1].split(","))
            cells = [evaluation_cell(length=n, seconds=0.5, split_tokens=4000) for n in lengths]
            save_document(document(*cells), tmp := Path(out))
            assert tmp.is_file()
        return 0


def test_measured_once_with_the_comparisons_own_commands(data_bin, tmp_path, monkeypatch, capsys):
    commands = Commands()
    monkeypatch.setattr(process, "run", commands)
    what = comparison(data_bin, seeds=[1, 2])
    work = ComparisonWork(what, tmp_path, parallel=2)
    work.prepare()
    trained = [words for words in commands.ran if words[3] == "train"]
    assert len(trained) == 2 and len(commands.ran) == 4  # not per seed
    assert all("--stop-time-hours" in words for words in trained)
    assert not (tmp_path / "measuring").exists()
    updates = work.budget.updates
    # 0.9 of an hour for two models of each method, two at a time.
    assert updates == pytest.approx(0.9 * 3600 / (UPDATE["alibi"] + UPDATE["sinusoidal"]), rel=0.1)
    assert {cell.comparison.updates for cell in work.cells.values()} == {updates}
    assert f"{updates:,} updates of every run" in capsys.readouterr().out

    again = ComparisonWork(what, tmp_path, parallel=2)
    again.prepare()
    assert again.budget == work.budget and len(commands.ran) == 4
    more = ComparisonWork(comparison(data_bin, seeds=[1, 2, 3]), tmp_path, parallel=2)
    assert more.budget.updates == updates and more.budget.left_out == ((3, "toy", 16),)
    shutil.rmtree(tmp_path / "measuring", ignore_errors=True)


def test_hours_or_updates(data_bin):
    with pytest.raises(BadInput, match="updates and hours: give one"):
        comparison(data_bin, updates=100)
    with pytest.raises(BadInput, match="hours: -1"):
        comparison(data_bin, hours=-1)
    what = comparison(data_bin)
    assert from_mapping(as_mapping(what)) == what
