"""Tuning of learning rates, with fake commands except in the last test."""

from __future__ import annotations

import json

import pytest
from fakes import TINY, Commands
from results_documents import cells_of

from alibi_fairseq.cli import main
from alibi_fairseq.errors import STOPPED_EARLY
from alibi_fairseq.results.results_file import load_results_file
from alibi_fairseq.runs import child_process

#: Validation perplexity by method and learning rate; None: the training diverges.
BEST = {
    "alibi": {"0.002": 30.0, "0.004": 20.0, "0.008": 25.0},
    "none": {"0.002": 50.0, "0.004": 40.0, "0.008": 35.0},
    "rotary": {"0.002": 30.0, "0.004": 31.0, "0.008": None},
}


@pytest.fixture
def commands(monkeypatch):
    fake = Commands()
    fake.validation = {method: dict(perplexities) for method, perplexities in BEST.items()}
    monkeypatch.setattr(child_process, "execute", fake)
    return fake


def words(data, out, *more: str, methods="alibi,none", lr="0.002,0.004,0.008"):
    options = ["--methods", methods, "--train-lengths", "16", "--lengths", "16", "--lr", lr]
    options += ["--updates", "40", "--tokens-per-update", "128", "--subset", "test"]
    return ["compare", str(data), "--out", str(out), "--parallel", "1", *options, *more]


def test_tuning_chooses_best_rate_per_method(data_bin, tmp_path, commands, capsys):
    assert main(words(data_bin, tmp_path, "--seeds", "1,2", "--tune-share", "0.2")) == 0
    trials = [training for training in commands.trained if training[2] == 8]
    runs = [training for training in commands.trained if training[2] == 40]
    first_names = {name for name, *_ in commands.trained[:3]}
    assert first_names == {f"alibi-16-seed1-lr{lr}" for lr in ("0.002", "0.004", "0.008")}
    assert len(trials) == 6
    assert runs == [
        *(("alibi-16-seed1", "0.004", 40), ("none-16-seed1", "0.008", 40)),
        *(("alibi-16-seed2", "0.004", 40), ("none-16-seed2", "0.008", 40)),
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
    assert main(words(data_bin, tmp_path, "--seeds", "1,2", "--tune-share", "0.2")) == 0
    assert len(commands.trained) == 10
    assert main(words(data_bin, tmp_path / "one", lr="0.004")) == 0
    assert len(commands.trained) == 12
    assert not list(tmp_path.rglob("one/*/*tuning*"))


def test_trials_resume_and_appear_in_dry_run(data_bin, tmp_path, commands, capsys):
    commands.stop_at = 5
    assert main(words(data_bin, tmp_path)) == STOPPED_EARLY
    assert len(commands.trained) == 4
    assert not list(tmp_path.rglob("none-16-seed1*"))
    capsys.readouterr()
    assert main(words(data_bin, tmp_path, "--dry-run")) == 0
    output = capsys.readouterr().out
    assert output.count("--max-update 10") == 3
    assert output.count("--max-update 40") == 2
    assert "2 runs of 10,240 tokens in total, after 3 trials of 3,840 tokens" in output
    assert main(words(data_bin, tmp_path)) == 0
    assert [name for name, *_ in commands.trained[4:]] == [
        *(f"none-16-seed1-lr{lr}" for lr in ("0.002", "0.004", "0.008")),
        "none-16-seed1",
    ]


def test_diverged_rate_is_not_chosen(data_bin, tmp_path, commands, capsys):
    assert main(words(data_bin, tmp_path, methods="rotary")) == 0
    assert commands.trained[-1] == ("rotary-16-seed1", "0.002", 40)
    row = ["Rotary, L=16", "30.00", "31.00", "diverged", "0.002"]
    assert row in cells_of((tmp_path / "table.md").read_text())
    assert main(words(data_bin, tmp_path, methods="rotary")) == 0
    assert len(commands.trained) == 4
    commands.validation["rotary"] = dict.fromkeys(BEST["rotary"])
    capsys.readouterr()
    assert main(words(data_bin, tmp_path / "other", methods="rotary")) == 2
    assert (
        "--lr: Rotary, L=16 diverged at 0.002, 0.004, 0.008. Try smaller" in capsys.readouterr().err
    )


def test_trials_are_separate_jobs(data_bin, tmp_path, commands, capsys):
    assert main(words(data_bin, tmp_path, "--slurm", "--dry-run")) == 0
    output = capsys.readouterr().out
    tuning, training = output.partition("# training")[::2]
    assert "# tuning: 6 jobs\n" in tuning
    assert tuning.count("\nrun:") == 6
    assert training.startswith(" and evaluating: 2 jobs, after 'tuning'")
    name = f"{data_bin.parent.name}/alibi-16-seed1"
    assert main(words(data_bin, tmp_path, "--job", f"run:{name}")) == 2
    assert f"trial {name}-lr0.002 is unfinished. Run it first." in capsys.readouterr().err
    for lr in ("0.002", "0.004", "0.008"):
        assert main(words(data_bin, tmp_path, "--job", f"run:{name}-lr{lr}")) == 0
    assert main(words(data_bin, tmp_path, "--job", f"run:{name}")) == 0
    assert commands.trained[-1] == ("alibi-16-seed1", "0.004", 40)


@pytest.mark.slow
def test_tuning_end_to_end(data_bin, tmp_path):
    options = ["--train-flags", TINY, "--seeds", "2", "--tune-share", "0.5"]
    assert main(words(data_bin, tmp_path, *options, methods="alibi", lr="0.00001,0.01")) == 0
    (file,) = tmp_path.rglob("alibi-16-tuning.json")
    outcome = json.loads(file.read_text())["result"]
    assert outcome["lr"] == 0.01
    assert outcome["at_edge"]
    assert outcome["updates"] == 20
    (record,) = (load_results_file(p) for p in tmp_path.rglob("*lr0.01/training.json"))
    assert outcome["trials"][1]["loss_bits"] == min(c["loss_bits"] for c in record["cells"])
    (training,) = (load_results_file(p) for p in tmp_path.rglob("alibi-16-seed2/training.json"))
    assert "--lr 0.01 " in training["provenance"]["command"]
