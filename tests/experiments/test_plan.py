"""The command a node runs."""

from __future__ import annotations

import shlex

import pytest

from alibi_fairseq.cli import main
from alibi_fairseq.errors import BadInput
from alibi_fairseq.experiments.torchrun import (
    Machine,
    launcher_flags,
    refuse_being_one_of_many,
    train_flags,
)
from alibi_fairseq.paper.recipe import find_recipe

RECIPE = find_recipe("wikitext-103/alibi-512")


def words(machine, max_restarts=0):
    return [*launcher_flags(machine, max_restarts), *train_flags(RECIPE, machine)]


def value(command, flag):
    return command[command.index(flag) + 1]


def test_one_gpu_trains_without_torchrun_and_takes_more_passes():
    assert launcher_flags(Machine(1), 0) == []
    command = words(Machine(1))
    assert value(command, "--update-freq") == "8"
    assert value(command, "--distributed-world-size") == "1"


def test_one_node_starts_its_own_rendezvous():
    command = words(Machine(4), max_restarts=3)
    assert command[:6] == [
        *("-m", "alibi_fairseq.experiments.torchrun", "--nnodes=1", "--nproc-per-node=4"),
        *("--max-restarts=3", "--standalone"),
    ]
    assert value(command, "--update-freq") == "2"


def test_several_nodes_meet_at_the_first():
    command = words(Machine(16, nodes=2, rdzv_endpoint="node1:29500", rdzv_id="77"))
    assert "--nnodes=2" in command and "--nproc-per-node=8" in command
    assert {"--rdzv-backend=c10d", "--rdzv-endpoint=node1:29500", "--rdzv-id=77"} < set(command)
    assert (value(command, "--max-tokens"), value(command, "--update-freq")) == ("4608", "1")


def test_the_cpu_trains_in_full_precision():
    command = words(Machine(2, cpu=True))
    assert "--cpu" in command and "--fp16" not in command
    large = train_flags(find_recipe("cc100-roberta/alibi-512"), Machine(1, cpu=True))
    assert not [word for word in large if "fp16" in word]


@pytest.mark.parametrize(
    ("environment", "nodes"),
    [
        ({"RANK": "0", "WORLD_SIZE": "2"}, 1),
        ({"TORCHELASTIC_RUN_ID": "x"}, 1),
        ({"SLURM_STEP_NUM_TASKS": "8"}, 1),
        ({"SLURM_STEP_NUM_TASKS": "8"}, 4),
    ],
)
def test_launchers_that_would_each_start_the_run_are_refused(environment, nodes):
    with pytest.raises(BadInput):
        refuse_being_one_of_many(environment, nodes)
    refuse_being_one_of_many({"SLURM_STEP_NUM_TASKS": str(nodes)}, nodes)
    refuse_being_one_of_many({"SLURM_JOB_ID": "1"}, 1)


@pytest.fixture
def data(tmp_path):
    (tmp_path / "dict.txt").touch()
    return str(tmp_path)


def test_the_command_line(data, capsys):
    arguments = ["--gpus", "2", "wikitext-103/alibi-512", data, "--save-dir", "runs", "--seed=3"]
    assert main(["launch", "--dry-run", *arguments]) == 0
    command = shlex.split(capsys.readouterr().out)
    assert "alibi_fairseq.experiments.torchrun" in command
    assert command[command.index("alibi_fairseq") + 1] == "train"
    assert command[-3:] == ["--save-dir", "runs", "--seed=3"]  # the last one counts
    assert value(command, "--update-freq") == "4"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("--gpus 2 RECIPE DATA", "--save-dir"),
        ("--gpus 2 wikitext-103/alibi DATA --save-dir d", "wikitext-103/alibi"),
        ("RECIPE DATA --save-dir d", "--cpu"),
        ("--gpus 2 --cpu 2 RECIPE DATA --save-dir d", "--cpu"),
        ("--gpus 5 RECIPE DATA --save-dir d", "use a divisor of 144"),
        ("--gpus 0 RECIPE DATA --save-dir d", "at least 1"),
        ("--gpus 9 --nnodes 2 --rdzv-endpoint a:1 RECIPE DATA --save-dir d", "2 nodes"),
        ("--gpus 8 --nnodes 2 RECIPE DATA --save-dir d", "--rdzv-endpoint"),
        ("--gpus 8 --nnodes 0 RECIPE DATA --save-dir d", "at least 1"),
        ("--gpus 2 RECIPE DATA --save-dir d --lrr 1", "--lrr"),
        ("--gpus 2 RECIPE DATA --save-dir d --lr fast", "--lr"),
        ("--cpu 2 RECIPE DATA:DATA/shard01 --save-dir d", "DATA/shard01"),
    ],
)
def test_bad_input(monkeypatch, data, capsys, arguments, named):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    arguments = arguments.replace("RECIPE", "wikitext-103/alibi-512").replace("DATA", data)
    assert main(["launch", "--dry-run", *arguments.split()]) == 2
    error = capsys.readouterr().err
    assert named.replace("DATA", data) in error and error.count("\n") == 1
