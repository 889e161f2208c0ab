"""Learning rates that trials choose; commands are stand-ins except in the last test."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from results_documents import cells_of, document, evaluation_cell
from stand_ins import value

from alibi_fairseq.cli import main
from alibi_fairseq.errors import STOPPED_EARLY
from alibi_fairseq.experiments import command, hours
from alibi_fairseq.experiments.compare import Compare
from alibi_fairseq.experiments.comparison import from_mapping
from alibi_fairseq.experiments.hours import Cost, that_fit
from alibi_fairseq.files import sha256_file
from alibi_fairseq.results.schema import load_document, save_document

#: Perplexity on validation by method and learning rate; None: the training diverges.
BEST = {
    "alibi": {"0.002": 30.0, "0.004": 20.0, "0.008": 25.0},
    "none": {"0.002": 50.0, "0.004": 40.0, "0.008": 35.0},
    "rotary": {"0.002": 30.0, "0.004": 31.0, "0.008": None},
}


class Commands:
    """Stands for ``command.execute``.

    Attributes:
        trained: save folder, learning rate and updates of each training.
        stop_at: the number of the training that is told to stop (1: the first).
    """

    def __init__(self):
        self.trained: list[tuple[str, str, int]] = []
        self.stop_at: int | None = None

    def __call__(self, words, ask=None, log=None, watch=None, place=None) -> int:
        return self.train(words, log, watch) if words[3] == "train" else self.eval(words)

    def train(self, words, log, watch) -> int:
        folder, lr = Path(value(words, "--save-dir")), value(words, "--lr")
        method, updates = value(words, "--position-method"), int(value(words, "--max-update"))
        self.trained.append((folder.name, lr, updates))
        if self.stop_at == len(self.trained):
            return STOPPED_EARLY
        found = BEST[method][lr]
        if found is None:
            log.write("FloatingPointError: gradients are Nan/Inf\n")
            log.flush()
            watch()
            return 1
        cells = [
            evaluation_cell(found + more, position_method=method, updates=updates - more, length=16)
            for more in (1, 0)
        ]
        save_document(document(*cells, kind="training"), folder / "training.json")
        history = {"optimizer_history": [{"num_updates": updates}], "of": folder.name}
        torch.save(history, folder / "checkpoint_last.pt")
        return 0

    def eval(self, words) -> int:
        """The lower the learning rate, the better on the split that is evaluated."""
        model = Path(value(words, "--path"))
        of_model = {"checkpoint": str(model), "checkpoint_sha256": sha256_file(model)}
        of_model |= {"position_method": model.parent.name.split("-")[0], "train_length": 16}
        cell = evaluation_cell(20.0, length=16, stride=16, subset="test", **of_model)
        save_document(document(cell), value(words, "--out"))
        return 0


@pytest.fixture
def commands(monkeypatch):
    stand_ins = Commands()
    monkeypatch.setattr(command, "execute", stand_ins)
    return stand_ins


def words(data, out, *more: str, methods="alibi,none", lr="0.002,0.004,0.008"):
    options = ["--methods", methods, "--train-lengths", "16", "--eval-lengths", "16", "--lr", lr]
    options += ["--updates", "40", "--tokens-per-update", "128", "--subset", "test"]
    return ["compare", str(data), "--out", str(out), "--parallel", "1", *options, *more]


def test_each_method_gets_what_is_best_on_validation(data_bin, tmp_path, commands, capsys):
    assert main(words(data_bin, tmp_path, "--seeds", "1,2", "--tune-share", "0.2")) == 0
    trials, runs = commands.trained[:6], commands.trained[6:]
    assert {updates for *_, updates in trials} == {8} and {updates for *_, updates in runs} == {40}
    assert {name for name, *_ in trials[:3]} == {
        f"alibi-16-seed1-lr{lr}" for lr in ("0.002", "0.004", "0.008")
    }
    assert runs == [
        *(("alibi-16-seed1", "0.004", 40), ("none-16-seed1", "0.008", 40)),
        *(("alibi-16-seed2", "0.004", 40), ("none-16-seed2", "0.008", 40)),
    ]
    table = (tmp_path / "table.md").read_text()
    assert "chosen by validation perplexity after 8 updates" in table
    assert ["ALiBi, L=16", "30.00", "20.00", "25.00", "0.004"] in cells_of(table)
    assert "so others may be better: No positions, L=16." in table
    (kept,) = tmp_path.rglob("alibi-16-tuning.json")
    outcome = json.loads(kept.read_text())["result"]
    assert [trial["lr"] for trial in outcome["trials"]] == [0.002, 0.004, 0.008]
    assert outcome["lr"] == 0.004 and not outcome["at_edge"]
    assert main(words(data_bin, tmp_path, "--seeds", "1,2", "--tune-share", "0.2")) == 0
    assert len(commands.trained) == 10


def test_one_value_is_trained_as_without_tuning(data_bin, tmp_path, commands):
    assert main(words(data_bin, tmp_path, lr="0.004")) == 0
    assert [name for name, *_ in commands.trained] == ["alibi-16-seed1", "none-16-seed1"]
    assert "chosen" not in (tmp_path / "table.md").read_text()
    assert not list(tmp_path.rglob("*tuning*"))
    (settings,) = (json.loads(p.read_text()) for p in tmp_path.rglob("alibi-*/settings.json"))
    assert set(settings) == {"options", "train", "dictionary"}


def test_trials_resume_and_are_named_in_a_dry_run(data_bin, tmp_path, commands, capsys):
    commands.stop_at = 5
    assert main(words(data_bin, tmp_path)) == STOPPED_EARLY
    assert len(commands.trained) == 5 and not list(tmp_path.rglob("none-16-seed1"))
    capsys.readouterr()
    assert main(words(data_bin, tmp_path, "--dry-run")) == 0
    said = capsys.readouterr().out
    assert said.count("--max-update 10") == 2 and said.count("--max-update 40") == 2
    assert "2 runs of 5,120 tokens and 2 trials of 2,560 tokens together, 12,800 in all" in said
    assert main(words(data_bin, tmp_path)) == 0
    assert [name for name, *_ in commands.trained[5:]] == [
        *("none-16-seed1-lr0.004", "none-16-seed1-lr0.008", "alibi-16-seed1", "none-16-seed1")
    ]


def test_a_value_that_diverges_is_not_chosen(data_bin, tmp_path, commands, monkeypatch, capsys):
    assert main(words(data_bin, tmp_path, methods="rotary")) == 0
    assert commands.trained[-1] == ("rotary-16-seed1", "0.002", 40)
    row = ["Rotary, L=16", "30.00", "31.00", "diverged", "0.002"]
    assert row in cells_of((tmp_path / "table.md").read_text())
    assert main(words(data_bin, tmp_path, methods="rotary")) == 0 and len(commands.trained) == 4
    monkeypatch.setitem(BEST, "rotary", dict.fromkeys(BEST["rotary"]))
    capsys.readouterr()
    assert main(words(data_bin, tmp_path / "other", methods="rotary")) == 2
    assert "lr: Rotary, L=16 diverges at every value" in capsys.readouterr().err


def test_trials_are_jobs_of_their_own(data_bin, tmp_path, commands, capsys):
    assert main(words(data_bin, tmp_path, "--slurm", "--dry-run")) == 0
    said = capsys.readouterr().out
    tuning, training = said.partition("# training")[::2]
    assert tuning.startswith("# tuning: 6 jobs") and tuning.count("--job train:") == 6
    assert training.startswith(": 2 jobs, after 'tuning'")
    name = f"{data_bin.parent.name}/alibi-16-seed1"
    assert main(words(data_bin, tmp_path, "--job", f"train:{name}")) == 2
    assert f"the trial {name}-lr0.002 has to be done first" in capsys.readouterr().err
    for lr in ("0.002", "0.004", "0.008"):
        assert main(words(data_bin, tmp_path, "--job", f"train:{name}-lr{lr}")) == 0
    assert main(words(data_bin, tmp_path, "--job", f"train:{name}")) == 0
    assert commands.trained[-1] == ("alibi-16-seed1", "0.004", 40)


def test_hours_include_the_trials(data_bin, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(hours, "cost_of", lambda run: Cost(1.0, 0.0, 7.0, 1e9))
    corpora = [{"name": "toy", "data": str(data_bin)}]
    values = {"corpora": corpora, "methods": "alibi", "train_lengths": 16, "eval_lengths": 16}
    values |= {"tokens_per_update": 128, "tune_share": 0.5}
    what = from_mapping({**values, "lr": [0.1, 0.2], "updates": 1000})
    (run,) = Compare(what, tmp_path).runs
    # 2 × 500 updates of trials and 1,000 of the run, each with its start, and one evaluation
    needed = (2000 + 7 + 6 * hours.STARTUP) / 3600 / hours.PLANNED
    assert that_fit([run], 1, None, 1.01 * needed) == [run]
    assert that_fit([run], 1, None, 0.99 * needed) == []
    what = from_mapping({**values, "lr": [0.1, 0.2], "hours": needed})
    assert Compare(what, tmp_path, 1).resolved.updates == pytest.approx(1000, rel=0.05)


@pytest.mark.slow
def test_for_real(data_bin, tmp_path):
    tiny = "--decoder-layers 1 --decoder-embed-dim 32 --decoder-ffn-embed-dim 32 --num-workers 0"
    options = ["--train-flags", tiny, "--seeds", "2", "--tune-share", "0.5"]
    assert main(words(data_bin, tmp_path, *options, methods="alibi", lr="0.00001,0.01")) == 0
    (kept,) = tmp_path.rglob("alibi-16-tuning.json")
    outcome = json.loads(kept.read_text())["result"]
    assert outcome["lr"] == 0.01 and outcome["at_edge"] and outcome["updates"] == 20
    (record,) = (load_document(p) for p in tmp_path.rglob("*lr0.01/training.json"))
    assert outcome["trials"][1]["loss_bits"] == min(c["loss_bits"] for c in record["cells"])
    (training,) = (load_document(p) for p in tmp_path.rglob("alibi-16-seed2/training.json"))
    assert "--lr 0.01 " in training["provenance"]["command"]
