"""``--hours``: what fits, the same for every method, from what a few updates took."""

import re

import pytest

from alibi_fairseq.errors import BadInput
from alibi_fairseq.experiments import budget, compare, timing
from alibi_fairseq.experiments.budget import plan, rounded
from alibi_fairseq.experiments.compare import Compare
from alibi_fairseq.experiments.comparison import as_mapping, from_mapping
from alibi_fairseq.experiments.timing import Cost, makespan

#: Seconds per update.
UPDATE = {"alibi": 0.2, "sinusoidal": 0.1}


def planned(work, seconds, **more):
    """With a number of seconds left for the runs."""
    spent = more.get("spent", 0.0)
    return plan(work, (seconds + spent) / 3600 / budget.PLANNED, **more)


def comparison(data, **changes):
    corpora = [{"name": "toy", "data": str(data)}]
    values = {"methods": list(UPDATE), "train_lengths": 16, "eval_lengths": [16, 32]}
    values |= {"corpora": corpora, "tokens_per_update": 128, "hours": 1, **changes}
    return from_mapping(values)


def work_of(what):
    """Group, cost and whether it is done, of each run."""
    return [
        ((seed, corpus.name, length), Cost(UPDATE[method], 0.0, 5.0, 100.0), False)
        for corpus, method, length, seed in what.cells()
    ]


RUN = 5.0 + 2 * timing.STARTUP  # seconds of a run without its updates


def test_the_largest_number_of_updates_that_fits(data_bin):
    work = work_of(comparison(data_bin, seeds=[1, 2]))
    # Both seeds of both methods: 0.6 s per update.
    found = planned(work, 4 * RUN + 0.6 * 5000.5, parallel=1)
    assert (found.updates, found.left_out) == (5000, ())
    assert found.seconds == pytest.approx(4 * RUN + 3000)
    # Two at a time: seed 1 of both methods, then seed 2 where a place is free first.
    assert planned(work, 2 * RUN + 0.3 * 5000.5, parallel=2).updates == 5000


def test_what_does_not_fit_is_left_out_for_all_methods_alike(data_bin):
    work = work_of(comparison(data_bin, seeds=[1, 2, 3]))
    one_seed = 2 * RUN + 0.3 * budget.LEAST
    found = planned(work, 2.5 * one_seed, parallel=1)
    assert found.updates == budget.LEAST and found.left_out == ((3, "toy", 16),)
    said = " ".join(found.sentences())
    assert "Left out: seed 3 of toy, trained at 16, all methods." in said


def test_the_hours_that_an_error_asks_for_are_enough(data_bin):
    work = work_of(comparison(data_bin))
    with pytest.raises(BadInput, match="100 updates of every method take about") as error:
        planned(work, 50, parallel=1, spent=240)
    hours = float(re.search(r"about (\S+) hours", str(error.value))[1])
    # Also for a machine that is measured 5 % slower the next time.
    assert plan(work, hours, parallel=1, spent=252).updates >= budget.LEAST
    assert hours < 1.2 * (80 + 240) / 3600 / budget.PLANNED


def test_added_methods_keep_the_updates_of_the_models_that_are_there(data_bin):
    assert plan(work_of(comparison(data_bin)), 1e3, parallel=1, updates=700).updates == 700


def test_validation_counts_and_numbers_are_round():
    cost = Cost(update=0.5, validation=2.0, evaluation=5.0, epoch=500.0)
    assert cost.seconds(1000) == 500 + 13 * 2 + 5 + 2 * timing.STARTUP
    assert [rounded(n) for n in (107, 1299, 98765)] == [100, 1200, 98000]
    assert makespan([3, 3, 3], parallel=2) == 6


def test_measured_once_for_all_seeds_and_kept(data_bin, tmp_path, monkeypatch, capsys):
    measured = []

    def cost_of(run):
        method = run.name.partition("/")[2].partition("-")[0]
        measured.append(method)
        return Cost(UPDATE[method], 0.0, 5.0, 100.0)

    monkeypatch.setattr(budget, "cost_of", cost_of)
    what = comparison(data_bin, seeds=[1, 2])
    experiment = Compare(what, tmp_path, parallel=2)
    experiment.prepare()
    assert measured == ["alibi", "sinusoidal"]  # not per seed
    updates = experiment.budget.updates
    # Two models of each method, two at a time.
    seconds = budget.PLANNED * 3600 / (UPDATE["alibi"] + UPDATE["sinusoidal"])
    assert updates == pytest.approx(seconds, rel=0.1)
    assert {run.updates for run in experiment.runs} == {updates}
    assert f"{updates:,} updates of every run" in capsys.readouterr().out

    again = Compare(what, tmp_path, parallel=2)
    again.prepare()
    assert again.budget == experiment.budget and len(measured) == 2
    more = Compare(comparison(data_bin, seeds=[1, 2, 3]), tmp_path, parallel=2)
    assert more.budget.updates == updates and more.budget.left_out == ((3, "toy", 16),)
    assert len(more.runs) == 4


def test_the_cost_of_a_real_run(data_bin, tmp_path):
    """Updates and forward passes are timed, and longer evaluations cost more."""
    flags = "--decoder-layers 1 --decoder-embed-dim 32 --decoder-ffn-embed-dim 32"
    few, many = (
        timing.cost_of(compare.runs_of(what, tmp_path)[0])
        for lengths in ([16], [16, 32, 64, 128])
        for what in [comparison(data_bin, train_flags=flags, eval_lengths=lengths)]
    )
    assert 0 < few.update < 5 and few.validation > 0 and few.epoch >= 1
    assert many.evaluation > few.evaluation > 0


def test_hours_or_updates(data_bin):
    with pytest.raises(BadInput, match="updates and hours: give one"):
        comparison(data_bin, updates=100)
    with pytest.raises(BadInput, match="hours: -1"):
        comparison(data_bin, hours=-1)
    what = comparison(data_bin)
    assert from_mapping(as_mapping(what)) == what
