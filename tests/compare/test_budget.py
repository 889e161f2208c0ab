"""Updates that fit into a number of hours."""

import json
import re

import pytest

from alibi_fairseq.cli import main
from alibi_fairseq.compare import timing
from alibi_fairseq.compare.comparison_config import as_mapping, from_mapping
from alibi_fairseq.compare.experiment import ComparisonExperiment, runs_of
from alibi_fairseq.compare.timing import MIN_UPDATES, PLANNED, STARTUP, Cost, updates_that_fit
from alibi_fairseq.errors import UserInputError

#: Seconds per update.
UPDATE = {"alibi": 0.2, "sinusoidal": 0.1}
RUN = 5.0 + 2 * STARTUP  # seconds of a run without its updates


def comparison(data, **changes):
    corpora = [{"name": "toy", "data": str(data)}]
    values = {"methods": list(UPDATE), "train_lengths": 16, "eval_lengths": [16, 32]}
    return from_mapping({**values, "corpora": corpora, "tokens_per_update": 128, **changes})


@pytest.fixture
def measured(monkeypatch):
    """The methods whose cost was measured."""
    found = []

    def cost_of(run):
        found.append(run.name.partition("/")[2].partition("-")[0])
        return Cost(UPDATE[found[-1]], 0.0, 5.0, 100.0)

    monkeypatch.setattr(timing, "cost_of", cost_of)
    return found


@pytest.mark.parametrize(
    ("parallel", "changes", "seconds"),
    [
        (1, {"seeds": [1, 2]}, 4 * RUN + 0.6 * 5000.5),  # four runs, 0.6 s for an update of each
        (2, {"seeds": [1, 2]}, 2 * RUN + 0.3 * 5000.5),  # seed 2 where a place is free first
        # Of each method two trials of half the updates, which evaluate nothing, and the run.
        (1, {"lr": [0.1, 0.2], "tune_share": 0.5}, 6 * RUN - 20 + 0.6 * 5000.5),
    ],
)
def test_the_largest_number_of_updates_that_fits(
    data_bin, tmp_path, measured, parallel, changes, seconds
):
    what = comparison(data_bin, **changes, hours=seconds / 3600 / PLANNED)
    experiment = ComparisonExperiment(what, tmp_path, parallel)
    assert experiment.resolved.updates == 5000 and measured == [*UPDATE]  # not each seed or rate


def test_the_hours_that_an_error_asks_for_are_enough(data_bin, tmp_path, measured):
    runs = runs_of(comparison(data_bin), tmp_path)
    with pytest.raises(UserInputError) as error:
        updates_that_fit(runs, 50 / 3600, parallel=1)
    asked = float(re.search(r"about (\S+) hours", str(error.value))[1])
    assert MIN_UPDATES <= updates_that_fit(runs, asked, parallel=1)[0] < 1.5 * MIN_UPDATES


def test_validations_count():
    cost = Cost(update=0.5, validation=2.0, evaluation=5.0, epoch=500.0)
    assert cost.seconds(1000) == 500 + 13 * 2 + 5 + 2 * STARTUP


def test_measured_once_and_kept(data_bin, tmp_path, measured, capsys):
    what = comparison(data_bin, seeds=[1, 2], hours=1)
    assert from_mapping(as_mapping(what)) == what
    experiment = ComparisonExperiment(what, tmp_path, parallel=2)
    experiment.prepare()
    updates = json.loads((tmp_path / "hours.json").read_text())["updates"]
    assert {run.updates for run in experiment.runs} == {updates} and updates % 100 == 0
    assert f"{updates:,} updates of each of 4 runs" in capsys.readouterr().out
    more = ComparisonExperiment(
        comparison(data_bin, seeds=[1, 2, 3], hours=1), tmp_path, parallel=2
    )
    assert {run.updates for run in more.runs} == {updates} and len(more.runs) == 6
    assert len(measured) == 2
    other = ComparisonExperiment(comparison(data_bin, seeds=[1, 2], hours=2), tmp_path, parallel=2)
    assert other.budget["updates"] >= 2 * updates and len(measured) == 4


def test_a_dry_run_measures_nothing_and_says_what_will_change(tmp_path, capsys):
    (tmp_path / "book.txt").write_text("text")
    words = ["compare", str(tmp_path / "book.txt"), "--out", str(tmp_path / "out"), "--dry-run"]
    assert main([*words, "--hours", "8"]) == 0
    assert "--hours 8 will set --max-update" in capsys.readouterr().out


@pytest.mark.parametrize("method", ["alibi", "learned"])
def test_the_cost_of_a_real_run(data_bin, tmp_path, method):
    """Updates and forward passes are timed, past a table of learned positions as well."""
    flags = "--decoder-layers 1 --decoder-embed-dim 32 --decoder-ffn-embed-dim 32"
    what = comparison(data_bin, methods=[method], train_flags=flags, eval_lengths=[16, 64])
    cost = timing.cost_of(runs_of(what, tmp_path)[0])
    assert 0 < cost.update < 5 and cost.validation > 0 and cost.epoch >= 1 and cost.evaluation > 0
