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
from alibi_fairseq.paper.catalogue import find_recipe

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
    ("machine", "sentence"),
    [
        (Machine(7), "^7 GPUs cannot keep 73,728 tokens per update: its 144 sequences"),
        (
            Machine(9, nodes=2, rdzv_endpoint="a:1"),
            "9 processes cannot be spread evenly over 2 nodes",
        ),
        (Machine(8, nodes=2), "--rdzv-endpoint HOST:PORT must name the first node"),
        (Machine(8, nodes=0), "must be at least 1"),
        (Machine(0), "must be at least 1"),
    ],
)
def test_machines_that_do_not_fit_are_refused(machine, sentence):
    with pytest.raises(BadInput, match=sentence):
        words(machine)


@pytest.mark.parametrize(
    ("environment", "nodes", "sentence"),
    [
        ({"RANK": "0", "WORLD_SIZE": "2"}, 1, "starts torchrun itself"),
        ({"TORCHELASTIC_RUN_ID": "x"}, 1, "starts torchrun itself"),
        ({"SLURM_STEP_NUM_TASKS": "8"}, 1, "srun started 8 launchers for 1 node,"),
        ({"SLURM_STEP_NUM_TASKS": "8"}, 4, "srun started 8 launchers for 4 nodes,"),
    ],
)
def test_launchers_that_would_each_start_the_run_are_refused(environment, nodes, sentence):
    with pytest.raises(BadInput, match=sentence):
        refuse_being_one_of_many(environment, nodes)


def test_a_launcher_per_node_is_right():
    refuse_being_one_of_many({"SLURM_STEP_NUM_TASKS": "4"}, 4)
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
    ("arguments", "sentence"),
    [
        (["--gpus", "2", "wikitext-103/alibi-512", "DATA"], "--save-dir DIR"),
        (["--gpus", "2", "wikitext-103/alibi", "DATA"], "Did you mean 'wikitext-103/alibi-"),
        (["wikitext-103/alibi-512", "DATA"], "There is no GPU here; use --cpu N"),
        (["--gpus", "2", "--cpu", "2", "wikitext-103/alibi-512", "DATA"], "Choose one of"),
        (["--gpus", "5", "wikitext-103/alibi-512", "DATA"], "use 2, 3, 4 or 6"),
        (
            ["--gpus", "2", "wikitext-103/alibi-512", "DATA", "--save-dir", "d", "--lrr", "1"],
            "unrecognized arguments: --lrr 1; see --help.",
        ),
        (
            ["--gpus", "2", "wikitext-103/alibi-512", "DATA", "--save-dir", "d", "--lr", "fast"],
            "argument --lr: invalid",
        ),
    ],
)
def test_user_errors_are_one_sentence(monkeypatch, data, capsys, arguments, sentence):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    arguments = [data if word == "DATA" else word for word in arguments]
    assert main(["launch", "--dry-run", *arguments]) == 2
    error = capsys.readouterr().err
    assert sentence in error and error.count("\n") == 1


def test_missing_data_is_reported_before_anything_starts(data, capsys):
    folders = f"{data}:{data}/shard01"
    arguments = ["--cpu", "2", "wikitext-103/alibi-512", folders, "--save-dir", "runs"]
    assert main(["launch", *arguments]) == 2
    assert f"There is no prepared data in {data}/shard01" in capsys.readouterr().err
