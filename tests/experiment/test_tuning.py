"""Tuning of learning rates, with fake commands except in the last test."""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from fakes import TINY, Commands, value
from results_documents import cells_of

from alibi_fairseq.cli import main
from alibi_fairseq.errors import STOPPED_EARLY
from alibi_fairseq.experiment import child_process
from alibi_fairseq.positions import METHODS, PositionMethod
from alibi_fairseq.results.file import load, save
from alibi_fairseq.results.result import Result
from alibi_fairseq.results.values import TextValues

RATES = ("0.002", "0.004", "0.008")

#: Validation perplexity by method and learning rate; None: the training diverges.
PERPLEXITIES = {
    "alibi": {"0.002": 30.0, "0.004": 20.0, "0.008": 25.0},
    "none": {"0.002": 50.0, "0.004": 40.0, "0.008": 35.0},
    "rotary": {"0.002": 30.0, "0.004": 31.0, "0.008": None},
}


@pytest.fixture
def commands(monkeypatch):
    """Replace the commands of runs with fakes that reach the perplexities above."""
    fake = Commands()
    for method, perplexities in PERPLEXITIES.items():
        fake.validation[method] = dict(perplexities)
    monkeypatch.setattr(child_process, "execute_command", fake)
    return fake


def compare_command(
    data, out, *options: str, methods: str = "alibi,none", lr: str = ",".join(RATES)
) -> list[str]:
    """Build a comparison of 40 updates per run, with trials at several learning rates."""
    command = ["compare", str(data), "--out", str(out), "--parallel", "1"]
    command += ["--methods", methods, "--train-lengths", "16", "--lengths", "16", "--lr", lr]
    command += ["--updates", "40", "--tokens-per-update", "128", "--subset", "test"]
    return [*command, *options]


@pytest.mark.ci
def test_tuning_chooses_best_rate_per_method(data_bin, tmp_path, commands):
    command = compare_command(data_bin, tmp_path, "--seeds", "1,2", "--tune-share", "0.2")
    assert main(command) == 0
    trials = [training for training in commands.trained if training[2] == 8]
    runs = [training for training in commands.trained if training[2] == 40]
    first_names = {name for name, _, _ in commands.trained[:3]}
    assert first_names == {f"alibi-16-seed1-lr{rate}" for rate in RATES}
    assert len(trials) == 6
    assert runs == [
        ("alibi-16-seed1", "0.004", 40),
        ("none-16-seed1", "0.008", 40),
        ("alibi-16-seed2", "0.004", 40),
        ("none-16-seed2", "0.008", 40),
    ]

    table = (tmp_path / "table.md").read_text()
    assert "chosen by validation perplexity after 8 updates" in table
    assert ["ALiBi, L=16", "30.00", "20.00", "25.00", "0.004"] in cells_of(table)
    assert "so others may be better: No positions, L=16." in table

    (file,) = tmp_path.rglob("alibi-16-tuning.json")
    outcome = json.loads(file.read_text())["result"]
    assert [trial["lr"] for trial in outcome["trials"]] == [0.002, 0.004, 0.008]
    assert outcome["lr"] == 0.004
    assert not outcome["at_edge"]
    for trial in outcome["trials"]:
        training_command = trial["provenance"]["command"]
        assert training_command.startswith("python -m alibi_fairseq train")
        assert f"--lr {trial['lr']}" in training_command
        assert "versions" in trial["provenance"]

    assert main(command) == 0
    assert len(commands.trained) == len(trials) + len(runs)


def test_tables_tell_apart_methods_whose_labels_leave_their_options_out(
    data_bin, tmp_path, commands
):
    commands.failing.add(("train", "alibi-attention_window=8-16-seed1"))
    methods = "t5/t5_max_distance=64,t5,alibi,alibi/attention_window=8,none"
    assert main(compare_command(data_bin, tmp_path, methods=methods)) == 1
    table = (tmp_path / "table.md").read_text()
    rows = [row[0] for row in cells_of(table)]
    bounded = "T5 bias (t5/t5_max_distance=64), L=16"
    # In the tables of learning rates and costs
    assert rows.count(bounded) == rows.count("T5 bias (t5), L=16") == 2
    assert f"so others may be better: {bounded}, T5 bias (t5), L=16, No positions" in table
    assert "\n- ALiBi (alibi/attention_window=8), L=16: " in table


def test_single_rate_needs_no_trials(data_bin, tmp_path, commands):
    assert main(compare_command(data_bin, tmp_path, lr="0.004")) == 0
    names = [name for name, _, _ in commands.trained]
    assert names == ["alibi-16-seed1", "none-16-seed1"]
    assert not list(tmp_path.rglob("*tuning*"))


def test_trials_require_the_split_on_which_they_are_compared(data_bin, tmp_path, commands, capsys):
    flags = ["--train-flags", "--valid-subset test"]
    command = compare_command(data_bin, tmp_path, *flags, methods="alibi")
    assert main(command) == 2
    assert "--valid-subset test leaves out the split valid" in capsys.readouterr().err
    assert not commands.ran
    command = compare_command(data_bin, tmp_path, *flags, methods="alibi", lr="0.004")
    assert main(command) == 0


@pytest.mark.ci
def test_rate_chosen_on_another_validation_split_is_rejected(data_bin, tmp_path, commands, capsys):
    data = shutil.copytree(data_bin, tmp_path / "data-bin")
    command = compare_command(data, tmp_path / "out", methods="alibi")
    assert main(command) == 0
    shutil.copyfile(data / "test.idx", data / "valid.idx")
    shutil.copyfile(data / "test.bin", data / "valid.bin")
    commands.trained.clear()
    assert main(command) == 2
    assert "ALiBi, L=16 was chosen on another validation split" in capsys.readouterr().err
    for folder in (tmp_path / "out").rglob("alibi-16-seed1-lr0.00*"):
        shutil.rmtree(folder)
    commands.validation["alibi"]["0.002"] = 40.0
    assert main(command) == 0
    assert len(commands.trained) == 3
    shown = cells_of((tmp_path / "out/table.md").read_text())
    assert ["ALiBi, L=16", "40.00", "20.00", "25.00", "0.004"] in shown


@pytest.mark.ci
def test_rates_that_are_added_later_are_tried(data_bin, tmp_path, commands, capsys):
    """The old training is complete only if the trials choose its rate, whichever comes first."""
    assert main(compare_command(data_bin, tmp_path, methods="alibi", lr="0.004")) == 0
    assert main(compare_command(data_bin, tmp_path, methods="alibi", lr="0.004,0.002")) == 0
    trials = [(f"alibi-16-seed1-lr{rate}", rate, 10) for rate in ("0.004", "0.002")]
    assert commands.trained[1:] == trials
    assert ["ALiBi, L=16", "30.00", "20.00", "0.004"] in cells_of(
        (tmp_path / "table.md").read_text()
    )

    commands.validation["alibi"]["0.008"] = 10.0
    more = compare_command(data_bin, tmp_path, methods="alibi", lr="0.004,0.002,0.008")
    assert main([*more, "--dry-run"]) == 0
    assert "only repeated if a new rate is better: 1 of them" in capsys.readouterr().out
    assert main(more) == 0
    assert commands.trained[3:] == [
        ("alibi-16-seed1-lr0.008", "0.008", 10),
        ("alibi-16-seed1", "0.008", 40),
    ]
    (earlier,) = tmp_path.rglob("alibi-16-seed1-replaced-lr0.004")
    assert (earlier / "checkpoint_last.pt").is_file()
    output = capsys.readouterr().out
    assert f"alibi-16-seed1: --lr 0.008 is better than 0.004, now in {earlier}." in output
    assert ["ALiBi, L=16", "30.00", "20.00", "10.00", "0.008"] in cells_of(
        (tmp_path / "table.md").read_text()
    )

    # Without the added rate, its training is set aside, and the earlier one is back.
    assert main(compare_command(data_bin, tmp_path, methods="alibi", lr="0.004,0.002")) == 0
    assert len(commands.trained) == 5
    assert not earlier.exists()
    assert main(more) == 0
    assert len(commands.trained) == 5


@pytest.mark.ci
def test_training_of_an_earlier_comparison_stays_aside(data_bin, tmp_path, commands):
    """Its folder neither becomes the run, which would be refused, nor blocks its name."""
    few = compare_command(data_bin, tmp_path, methods="alibi", lr="0.004,0.002")
    assert main(few) == 0
    commands.validation["alibi"]["0.008"] = 10.0
    more = compare_command(data_bin, tmp_path, methods="alibi", lr="0.004,0.002,0.008")
    assert main(more) == 0
    (aside,) = tmp_path.rglob("alibi-16-seed1-replaced-lr0.004")
    request = json.loads((aside / "request.json").read_text())
    (aside / "request.json").write_text(json.dumps({**request, "train": "an earlier text"}))
    commands.trained.clear()
    assert main(few) == 0
    assert commands.trained == [("alibi-16-seed1", "0.004", 40)]
    assert main(more) == 0
    again = aside.with_name("alibi-16-seed1-replaced-lr0.004-2")
    assert json.loads((again / "request.json").read_text()) == request
    assert main(few) == 0
    assert not again.exists()
    assert aside.is_dir()
    assert len(commands.trained) == 1


@pytest.mark.ci
def test_trials_keep_their_last_checkpoint_only(data_bin, tmp_path, commands):
    command = compare_command(data_bin, tmp_path, methods="alibi", lr="0.004,0.002")
    assert main(command) == 0
    kept = sorted(f"{path.parent.name}/{path.name}" for path in tmp_path.rglob("checkpoint*.pt"))
    assert kept == [
        "alibi-16-seed1-lr0.002/checkpoint_last.pt",
        "alibi-16-seed1-lr0.004/checkpoint_last.pt",
        "alibi-16-seed1/checkpoint_best.pt",
        "alibi-16-seed1/checkpoint_last.pt",
    ]
    assert main(command) == 0
    assert len(commands.trained) == 3  # nothing is repeated


@pytest.mark.ci
def test_trials_resume_and_appear_in_dry_run(data_bin, tmp_path, commands, capsys):
    command = compare_command(data_bin, tmp_path)
    commands.stop_at = 5
    assert main(command) == STOPPED_EARLY
    assert len(commands.trained) == 4
    assert not list(tmp_path.rglob("none-16-seed1*"))

    capsys.readouterr()
    assert main([*command, "--dry-run"]) == 0
    output = capsys.readouterr().out
    assert output.count("--max-update 10") == 3
    assert output.count("--max-update 40") == 1
    # The training of one of the two runs is complete, its evaluation is not.
    assert "2 runs of 5,120 tokens in total, after 3 trials of 3,840 tokens" in output

    assert main(command) == 0
    resumed_names = [name for name, _, _ in commands.trained[4:]]
    assert resumed_names == [
        "none-16-seed1-lr0.002",
        "none-16-seed1-lr0.004",
        "none-16-seed1-lr0.008",
        "none-16-seed1",
    ]


@pytest.mark.ci
def test_dry_run_writes_nothing_after_trials(data_bin, tmp_path, commands, capsys):
    command = compare_command(data_bin, tmp_path, methods="alibi")
    assert main(command) == 0
    (outcome,) = tmp_path.rglob("*-tuning.json")
    outcome.unlink()
    (run_folder,) = tmp_path.rglob("alibi-16-seed1")
    shutil.rmtree(run_folder)
    before = sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*"))
    capsys.readouterr()
    assert main([*command, "--dry-run"]) == 0
    assert "--lr 0.004 " in capsys.readouterr().out
    assert sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*")) == before


@pytest.mark.ci
def test_diverged_rate_is_not_chosen(data_bin, tmp_path, commands):
    command = compare_command(data_bin, tmp_path, methods="rotary")
    assert main(command) == 0
    assert commands.trained[-1] == ("rotary-16-seed1", "0.002", 40)
    row = ["Rotary, L=16", "30.00", "31.00", "diverged", "0.002"]
    assert row in cells_of((tmp_path / "table.md").read_text())
    assert main(command) == 0
    assert len(commands.trained) == 4


@pytest.mark.ci
def test_rate_that_diverges_in_its_last_update_is_not_chosen(data_bin, tmp_path, commands):
    commands.validation["alibi"] = {"0.002": math.inf, "0.004": 90.0, "0.008": math.inf}
    command = compare_command(data_bin, tmp_path, methods="alibi")
    assert main(command) == 0
    row = ["ALiBi, L=16", "diverged", "90.00", "diverged", "0.004"]
    assert row in cells_of((tmp_path / "table.md").read_text())
    assert main(command) == 0
    assert len(commands.trained) == 4


@pytest.mark.ci
def test_models_with_equal_labels_have_separate_rows(data_bin, tmp_path, commands, monkeypatch):
    for name, perplexities in (("one", "alibi"), ("two", "none")):
        method = type(name, (PositionMethod,), {"display_name": "Plugin"})
        monkeypatch.setitem(METHODS, name, method)
        commands.validation[name] = PERPLEXITIES[perplexities]
    assert main(compare_command(data_bin, tmp_path, methods="one,two")) == 0
    cells = cells_of((tmp_path / "table.md").read_text())
    assert ["Plugin (one), L=16", "30.00", "20.00", "25.00", "0.004"] in cells
    assert ["Plugin (two), L=16", "50.00", "40.00", "35.00", "0.008"] in cells


def test_divergence_at_every_rate_is_an_error(data_bin, tmp_path, commands, capsys):
    commands.validation["rotary"] = dict.fromkeys(RATES)
    assert main(compare_command(data_bin, tmp_path, methods="rotary")) == 2
    message = capsys.readouterr().err
    assert "--lr: Rotary, L=16 diverged at 0.002, 0.004, 0.008. Try smaller" in message


def change_validations(commands: Commands, change: Callable) -> None:
    """Change the validations that each training of the fake commands writes."""
    train = commands.train

    def train_and_change(words, log, watch) -> int:
        code = train(words, log, watch)
        path = Path(value(words, "--save-dir")) / "training.json"
        results = load(path)
        save(replace(results, results=change(results.results)), path)
        return code

    commands.train = train_and_change


@pytest.mark.ci
def test_other_validated_splits_do_not_choose_the_rate(data_bin, tmp_path, commands):
    """The rates have the opposite order on the split ``test``, where losses are lower."""

    def add_test_split(validations: Sequence[Result]) -> list[Result]:
        added = []
        for validation in validations:
            values = TextValues(math.log2(100) - validation.values.loss_bits)
            case = replace(validation.case, split="test")
            added.append(replace(validation, case=case, values=values))
        return [*validations, *added]

    change_validations(commands, add_test_split)
    assert main(compare_command(data_bin, tmp_path, methods="alibi")) == 0
    assert commands.trained[-1] == ("alibi-16-seed1", "0.004", 40)
    row = ["ALiBi, L=16", "30.00", "20.00", "25.00", "0.004"]
    assert row in cells_of((tmp_path / "table.md").read_text())


@pytest.mark.ci
def test_trials_are_separate_jobs(data_bin, tmp_path, commands, capsys):
    assert main(compare_command(data_bin, tmp_path, "--slurm", "--dry-run")) == 0
    output = capsys.readouterr().out
    tuning, _, training = output.partition("# training")
    assert "# tuning: 6 jobs, after 'preparing the data'\n" in tuning
    assert tuning.count("\nrun:") == 6
    assert training.startswith(" and evaluating: 2 jobs, after 'tuning'")

    name = f"{data_bin.parent.name}/alibi-16-seed1"
    run_job = compare_command(data_bin, tmp_path, "--job", f"run:{name}")
    assert main(run_job) == 2
    assert f"trial {name}-lr0.002 is unfinished. Run it first." in capsys.readouterr().err
    for rate in RATES:
        trial_job = compare_command(data_bin, tmp_path, "--job", f"run:{name}-lr{rate}")
        assert main(trial_job) == 0
    assert main(run_job) == 0
    assert commands.trained[-1] == ("alibi-16-seed1", "0.004", 40)


@pytest.mark.ci
def test_methods_that_fail_leave_a_table_of_the_others(data_bin, tmp_path, commands, capsys):
    commands.validation["rotary"] = dict.fromkeys(RATES)
    commands.failing = {
        ("eval", "alibi-16-seed1"),
        ("train", "t5-16-seed1-lr0.004"),
        ("train", "none-16-seed2"),
    }
    methods = "alibi,rotary,t5,none,sinusoidal"
    command = compare_command(data_bin, tmp_path, "--seeds", "1,2", methods=methods)
    assert main(command) == 1
    assert "runs and trials did not complete" in capsys.readouterr().err
    table = (tmp_path / "table.md").read_text()
    (rows,) = re.findall("Perplexity on test, non-overlapping:\n\n(.*?)\n\n", table, re.DOTALL)
    reported = {cells[0].partition(",")[0] for cells in cells_of(rows)[1:]}
    assert reported == {"ALiBi", "No positions", "Sinusoidal"}
    failed = re.findall(r"^- (.+?): (.+)$", table, re.MULTILINE)
    assert [label for label, _ in failed] == [
        *("ALiBi, L=16, seed 1", "Rotary, L=16, seed 1", "T5 bias, L=16, seed 1"),
        *("Rotary, L=16, seed 2", "T5 bias, L=16, seed 2", "No positions, L=16, seed 2"),
    ]
    evaluation, rates, trial, *_, training = [reason for _, reason in failed]
    assert evaluation.startswith("its evaluation is not complete (log: ")
    assert rates == "--lr: Rotary, L=16 diverged at 0.002, 0.004, 0.008. Try smaller values."
    assert "t5-16-seed1-lr0.004/train.log" in trial
    assert training.startswith("its training is not complete (log: ")

    commands.failing = set()
    commands.validation["rotary"] = PERPLEXITIES["rotary"]
    for diverged in tmp_path.rglob("rotary-16-seed1-lr0.004"):
        shutil.rmtree(diverged)
    assert main(command) == 0
    table = (tmp_path / "table.md").read_text()
    assert "Not in the tables" not in table
    assert "Rotary, L=16 " in table


@pytest.mark.slow
def test_tuning_end_to_end(data_bin, tmp_path):
    options = ["--train-flags", TINY, "--seeds", "2", "--tune-share", "0.5"]
    command = compare_command(data_bin, tmp_path, *options, methods="alibi", lr="0.00001,0.01")
    assert main(command) == 0
    (outcome_file,) = tmp_path.rglob("alibi-16-tuning.json")
    outcome = json.loads(outcome_file.read_text())["result"]
    assert outcome["lr"] == 0.01
    assert outcome["at_edge"]
    assert outcome["updates"] == 20

    (trial_file,) = tmp_path.rglob("*lr0.01/training.json")
    records = load(trial_file).results
    assert outcome["trials"][1]["loss_bits"] == min(record.values.loss_bits for record in records)

    (training_file,) = tmp_path.rglob("alibi-16-seed2/training.json")
    command_line = load(training_file).provenance.command
    assert "--lr 0.01 " in command_line
