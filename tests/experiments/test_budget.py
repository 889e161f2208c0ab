"""Updates that fit into a number of hours."""

import re

import pytest

from alibi_fairseq.errors import BadInput
from alibi_fairseq.experiments import compare, hours
from alibi_fairseq.experiments.compare import Compare
from alibi_fairseq.experiments.comparison import as_mapping, from_mapping
from alibi_fairseq.experiments.hours import LEAST, PLANNED, Cost, makespan, updates_that_fit

#: Seconds per update.
UPDATE = {"alibi": 0.2, "sinusoidal": 0.1}
RUN = 5.0 + 2 * hours.STARTUP  # seconds of a run without its updates
#: Both methods with the first seed, then with the second.
COSTS = [Cost(UPDATE[method], 0.0, 5.0, 100.0) for method in (*UPDATE, *UPDATE)]


def comparison(data, **changes):
    corpora = [{"name": "toy", "data": str(data)}]
    values = {"methods": list(UPDATE), "train_lengths": 16, "eval_lengths": [16, 32]}
    values |= {"corpora": corpora, "tokens_per_update": 128, "hours": 1, **changes}
    return from_mapping(values)


@pytest.mark.parametrize(
    ("parallel", "seconds"),
    [
        (1, 4 * RUN + 0.6 * 5000.5),  # four runs, 0.6 s for an update of each
        (2, 2 * RUN + 0.3 * 5000.5),  # seed 1 of both, then seed 2 where a place is free first
    ],
)
def test_the_largest_number_of_updates_that_fits(parallel, seconds):
    updates, planned = updates_that_fit([(COSTS, 1.0)], seconds / 3600 / PLANNED, parallel)
    assert updates == 5000 and planned == pytest.approx(seconds, abs=0.5)


def test_the_hours_that_an_error_asks_for_are_enough():
    with pytest.raises(BadInput) as error:
        updates_that_fit([(COSTS, 1.0)], 100 / 3600, parallel=1)
    asked = float(re.search(r"about (\S+) hours", str(error.value))[1])
    slower = [Cost(1.05 * cost.update, 0.0, 5.0, 100.0) for cost in COSTS]  # the next time
    assert updates_that_fit([(slower, 1.0)], asked, parallel=1)[0] >= LEAST
    assert asked < 1.2 * (4 * RUN + 60) / 3600 / PLANNED


def test_validation_counts_and_numbers_are_round():
    cost = Cost(update=0.5, validation=2.0, evaluation=5.0, epoch=500.0)
    assert cost.seconds(1000) == 500 + 13 * 2 + 5 + 2 * hours.STARTUP
    simple = [Cost(1.0, 0.0, 0.0, 1e9)]
    for fits, rounded in ((107, 100), (1299, 1200), (98765, 98000)):
        planned = (fits + 0.5 + 2 * hours.STARTUP) / 3600 / PLANNED
        assert updates_that_fit([(simple, 1.0)], planned, 1)[0] == rounded
    assert makespan([3, 3, 3], parallel=2) == 6


def test_measured_once_for_all_seeds_and_kept(data_bin, tmp_path, monkeypatch, capsys):
    measured = []

    def cost_of(run):
        method = run.name.partition("/")[2].partition("-")[0]
        measured.append(method)
        return Cost(UPDATE[method], 0.0, 5.0, 100.0)

    monkeypatch.setattr(hours, "cost_of", cost_of)
    what = comparison(data_bin, seeds=[1, 2])
    assert from_mapping(as_mapping(what)) == what
    experiment = Compare(what, tmp_path, parallel=2)
    experiment.prepare()
    assert measured == ["alibi", "sinusoidal"]  # not per seed
    updates = experiment.budget["updates"]
    # Two models of each method, two at a time.
    seconds = PLANNED * 3600 / (UPDATE["alibi"] + UPDATE["sinusoidal"])
    assert updates == pytest.approx(seconds, rel=0.1)
    assert {run.updates for run in experiment.runs} == {updates}
    assert f"{updates:,} updates of each of 4 runs" in capsys.readouterr().out

    more = Compare(comparison(data_bin, seeds=[1, 2, 3]), tmp_path, parallel=2)
    assert {run.updates for run in more.runs} == {updates} and len(more.runs) == 6
    assert len(measured) == 2
    other = Compare(comparison(data_bin, hours=2), tmp_path, parallel=2)
    assert other.budget["updates"] > 2 * updates and len(measured) == 4


@pytest.mark.parametrize("method", ["alibi", "learned"])
def test_the_cost_of_a_real_run(data_bin, tmp_path, method):
    """Updates and forward passes are timed, past a table of learned positions as well."""
    flags = "--decoder-layers 1 --decoder-embed-dim 32 --decoder-ffn-embed-dim 32"
    few, many = (
        hours.cost_of(compare.runs_of(what, tmp_path)[0])
        for lengths in ([16], [16, 32, 64, 128])
        for what in [
            comparison(data_bin, methods=[method], train_flags=flags, eval_lengths=lengths)
        ]
    )
    assert 0 < few.update < 5 and few.validation > 0 and few.epoch >= 1
    assert few.evaluation > 0 and many.evaluation > 0
