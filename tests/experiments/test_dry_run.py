"""What a dry run says, and that it does nothing."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys

import pytest
import torch
from commands import ROOT

from alibi_fairseq.cli import main
from alibi_fairseq.experiments import command
from alibi_fairseq.experiments import paper_tables as costs
from alibi_fairseq.paper.recipe import find_recipe


@pytest.fixture(autouse=True)
def nothing_may_run(monkeypatch):
    def run(*arguments, **more):
        raise AssertionError("a dry run must not run anything")

    monkeypatch.setattr(command, "execute", run)


def lines_of(capsys, *words):
    assert main(["reproduce", *words, "--dry-run"]) == 0
    return capsys.readouterr().out.splitlines()


def commands_of(lines):
    return [shlex.split(line) for line in lines if line.startswith("python ")]


@pytest.mark.parametrize("scale", ["paper", "mini", "smoke"])
def test_all_is_described_and_nothing_written(tmp_path, monkeypatch, capsys, scale):
    monkeypatch.chdir(tmp_path)
    lines = lines_of(capsys, "all", "--scale", scale)
    commands = commands_of(lines)
    assert list(tmp_path.iterdir()) == []
    trainings = [command for command in commands if "train" in command]
    assert len(trainings) == 34 + 2 + 2 * 4  # intermediate models for Table 11 and Figure 5
    assert sum("prepare" in command for command in commands) == 3
    assert lines[-1].endswith("Nothing was run or written.")


def test_cost_of_table_5_at_the_papers_speeds(tmp_path, monkeypatch, capsys):
    """Table 5 by hand: 20 runs of 286,000 × 73,728 tokens and two of 286,000 × 65,536."""
    monkeypatch.chdir(tmp_path)
    lines = lines_of(capsys, "table5")
    rows = {line.split("|")[1].strip(): line.split("|") for line in lines if line.startswith("|")}
    tokens = 286_000 * (20 * 73_728 + 2 * 65_536)
    assert rows["together"][3].strip() == f"{tokens:,}"
    assert rows["wikitext-103/alibi-512"][4].strip() == "207"  # as in configs/README.md
    hours = [row[4].strip().replace(",", "") for name, row in rows.items() if "/" in name]
    total = int(rows["together"][4].strip().replace(",", ""))
    assert abs(sum(map(int, hours)) - total) <= len(hours)
    assert float(rows["together"][5].strip().removesuffix(" GB").replace(",", "")) > 100


def test_hours_of_a_run_that_ends_earlier():
    """Table 11 stops at equal time: 46.7k updates of 5,900 hours' 50k are the 5,500 of ALiBi 512."""
    hours = costs.v100_hours(find_recipe("cc100-roberta/sinusoidal-1024"), 46_700)
    assert hours == pytest.approx(5500, rel=0.005)


def test_gpus_change_how_an_update_is_dealt_out(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for gpus, freq in ((8, "1"), (4, "2"), (1, "8")):
        lines = lines_of(capsys, "table8", "--gpus", str(gpus))
        command = next(c for c in commands_of(lines) if "train" in c)
        assert command[command.index("--update-freq") + 1] == freq
    assert main(["reproduce", "table8", "--dry-run", "--gpus", "5"]) == 2
    assert "5 GPUs cannot keep 73,728 tokens per update" in capsys.readouterr().err


def test_stated_disk_holds_the_checkpoints_of_a_real_training(trained):
    """Bytes per parameter at most, against a checkpoint of fairseq's with Adam's state."""
    path = trained("alibi")
    weights = torch.load(path, weights_only=True)["model"].values()
    once = {weight.data_ptr(): weight.numel() for weight in weights}  # tied ones are stored once
    assert 11 < path.stat().st_size / sum(once.values()) < 1.2 * costs.BYTES["adam"]


def test_the_script_works_wherever_it_is_called(tmp_path):
    """With the Python that runs the tests, as on a cluster node that has its own."""
    path = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
    done = subprocess.run(
        [ROOT / "scripts" / "reproduce.sh", "table5", "--dry-run"],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "wikitext-103/t5-3072" in done.stdout
    assert list(tmp_path.iterdir()) == []
