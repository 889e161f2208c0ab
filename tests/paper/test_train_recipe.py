"""The command of a node, and two CPU processes that the launcher starts, kills, and stops."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time

import psutil
import pytest
import torch
from commands import PACKAGE, ROOT
from fairseq_runs import run_train, write_corpus

from alibi_fairseq.cli import main, train_recipe
from alibi_fairseq.cli.train_recipe import reject_nested_launchers
from alibi_fairseq.errors import STOPPED_EARLY, UserInputError
from alibi_fairseq.experiment import torchrun
from alibi_fairseq.paper.recipe import find_recipe, flags


@pytest.mark.parametrize(
    ("options", "expected", "without"),
    [
        ("--gpus 1", "--update-freq 8|--distributed-world-size 1", "torchrun"),
        (
            "--gpus 1 --max-restarts 2",
            "-m alibi_fairseq.experiment.torchrun --nnodes=1 --nproc-per-node=1 --max-restarts=2 "
            "--standalone -m alibi_fairseq train|--update-freq 8|--distributed-world-size 1",
            "rdzv",
        ),
        (
            "--gpus 4 --max-restarts 0",
            "-m alibi_fairseq.experiment.torchrun --nnodes=1 --nproc-per-node=4 --max-restarts=0 "
            "--standalone -m alibi_fairseq train|--update-freq 2",
            "rdzv",
        ),
        (
            "--gpus 16 --nodes 2 --rdzv-endpoint node1:29500 --rdzv-id 77",
            "--nnodes=2|--nproc-per-node=8|--rdzv-backend=c10d --rdzv-endpoint=node1:29500 "
            "--rdzv-id=77|--max-tokens 4608|--update-freq 1",
            "standalone",
        ),
        ("--cpu 2", "--cpu|--nproc-per-node=2", "fp16"),
        ("--gpus 1 --80gb", "--bf16|--max-tokens 36864|--update-freq 2", "fp16"),
        ("--gpus 1 --scale smoke", "--decoder-layers 2|--max-update 10", "286000"),
    ],
)
@pytest.mark.usefixtures("arguments_of_pytest_stay")
def test_command_by_devices(monkeypatch, options, expected, without):
    executed = []
    monkeypatch.setattr(train_recipe, "execute_command", executed.append)
    words = [*options.split(), "data", "--save-dir", "runs", "--seed=3"]
    main(["train", "--recipe", "wikitext-103/alibi-512", *words])
    (arguments,) = executed
    command = " ".join(arguments)
    assert all(part in command for part in expected.split("|"))
    assert without not in command
    assert command.endswith("data --save-dir runs --seed=3")  # the last value applies


@pytest.mark.parametrize(
    ("options", "warning"),
    [
        ("", ""),
        ("--max-tokens 3072 --update-freq 24", ""),
        ("--max-tokens 4608 --update-freq 16", "65,536 tokens with these options, and 73,728 in"),
        ("--batch-size 4", "32,768 tokens with these options, and 73,728 in"),
    ],
)
@pytest.mark.usefixtures("arguments_of_pytest_stay")
def test_other_tokens_per_update_are_warned_of(monkeypatch, capsys, options, warning):
    monkeypatch.setattr(train_recipe, "execute_command", lambda command: 0)
    words = ["--gpus", "1", "data", "--save-dir", "runs", *options.split()]
    assert main(["train", "--recipe", "wikitext-103/alibi-1024", *words]) == 0
    errors = capsys.readouterr().err
    assert warning in errors
    assert ("warning" in errors) == bool(warning)


@pytest.mark.usefixtures("arguments_of_pytest_stay")
def test_kept_updates_reach_every_process(monkeypatch, capsys):
    executed = []
    monkeypatch.setattr(train_recipe, "execute_command", executed.append)
    words = ["train", "--recipe", "wikitext-103/alibi-512", "--gpus", "2", "--keep-at", "500,1000"]
    words += ["data", "--save-dir", "runs"]
    main(words)
    (arguments,) = executed
    assert arguments[-2:] == ["--keep-at", "500,1000"]
    assert main([*words, "--dry-run"]) == 0
    assert capsys.readouterr().out.startswith("ALIBI_KEEP_AT=500,1000 fairseq-train ")


@pytest.mark.parametrize(
    ("options", "beginning"),
    [
        ("--gpus 8", f"fairseq-train --user-dir {PACKAGE} "),
        ("--gpus 8 --user-dir=mine", "fairseq-train --seed 1 "),
        ("--cpu 1", f"fairseq-train --user-dir {PACKAGE} "),
        (
            "--cpu 2",
            "torchrun --nnodes=1 --nproc-per-node=2 --max-restarts=0 --standalone "
            f"-m fairseq_cli.train --user-dir {PACKAGE} ",
        ),
        (
            "--gpus 16 --nodes 2 --rdzv-endpoint node1:29500",
            "torchrun --nnodes=2 --nproc-per-node=8 --max-restarts=0 --rdzv-backend=c10d "
            "--rdzv-endpoint=node1:29500 --rdzv-id=alibi -m fairseq_cli.train ",
        ),
    ],
)
@pytest.mark.usefixtures("arguments_of_pytest_stay")
def test_plain_command_by_devices(capsys, monkeypatch, tmp_path, options, beginning):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").write_text("import alibi_fairseq\n")
    words = [*options.split(), "data", "--save-dir", "runs", "--dry-run"]
    assert main(["train", "--recipe", "wikitext-103/alibi-512", *words]) == 0
    assert capsys.readouterr().out.startswith(beginning)


@pytest.mark.parametrize("option", ["--reset-optimizer", "--restore-file=old.pt"])
@pytest.mark.usefixtures("arguments_of_pytest_stay")
def test_restarts_would_repeat_what_applies_once(monkeypatch, capsys, option):
    executed = []
    monkeypatch.setattr(train_recipe, "execute_command", executed.append)
    words = ["train", "--recipe", "wikitext-103/alibi-512", "--gpus", "2", "data"]
    words += ["--save-dir", "runs", option]
    main(words)
    assert len(executed) == 1
    assert main([*words, "--max-restarts", "1"]) == 2
    name = option.partition("=")[0]
    assert f"{name} would apply again after each restart" in capsys.readouterr().err
    assert len(executed) == 1


@pytest.mark.parametrize(
    ("environment", "nodes"),
    [
        ({"RANK": "0", "WORLD_SIZE": "2"}, 1),
        ({"TORCHELASTIC_RUN_ID": "x"}, 1),
        ({"SLURM_STEP_NUM_TASKS": "8"}, 1),
        ({"SLURM_STEP_NUM_TASKS": "8"}, 4),
    ],
)
def test_nested_launchers_are_rejected(environment, nodes):
    with pytest.raises(UserInputError, match="each copy would start a full run"):
        reject_nested_launchers(environment, nodes)


@pytest.mark.parametrize("nodes", [1, 4])
def test_one_launcher_per_node_is_accepted(nodes):
    reject_nested_launchers({"SLURM_STEP_NUM_TASKS": str(nodes)}, nodes)


def test_launcher_outside_srun_is_accepted():
    reject_nested_launchers({"SLURM_JOB_ID": "1"}, 1)


RECIPE = find_recipe("bookcorpus/alibi-512")
LENGTH = 16
SEQUENCES = 4  # per process
# A small shape and schedule; the optimizer, criterion, and precision of the recipe stay.
TINY = f"""
    --decoder-layers 1 --decoder-embed-dim 16 --decoder-ffn-embed-dim 32
    --decoder-input-dim 16 --decoder-output-dim 16
    --decoder-attention-heads 2 --tokens-per-sample {LENGTH} --update-freq 1
    --dropout 0 --attention-dropout 0 --activation-dropout 0
    --warmup-updates 1 --lr 0.05 --lr-period-updates 1000
    --save-interval-updates 0 --log-format simple --log-interval 1
""".split()


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Return data for one update per epoch, with two processes or with a doubled batch."""
    folder = tmp_path_factory.mktemp("data")
    return write_corpus(folder, train=2 * SEQUENCES * LENGTH, valid=2 * LENGTH)


RESTART = ("--max-restarts", "1")


def launch(data, save_dir, updates, *flags, processes=2, options=()):
    """Start the launcher with processes on the CPU."""
    command = [sys.executable, "-m", "alibi_fairseq", "train", "--recipe", RECIPE.path]
    command += ["--cpu", str(processes), *options, str(data)]
    command += ["--save-dir", str(save_dir), *TINY, *flags]
    command += ["--max-tokens", str(SEQUENCES * LENGTH), "--max-update", str(updates)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with open(f"{save_dir}.log", "a") as log:
        return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)


def train_one(data, save_dir, updates):
    """Return the last checkpoint of one process that trains with the doubled batch."""
    words = [*flags(RECIPE.settings(1, cpu=True)), *TINY, "--max-update", str(updates)]
    return run_train(data, save_dir, *words, "--max-tokens", str(2 * SEQUENCES * LENGTH))


def last(save_dir):
    return torch.load(save_dir / "checkpoint_last.pt", weights_only=True)


def updates_in(save_dir):
    path = save_dir / "checkpoint_last.pt"
    return last(save_dir)["optimizer_history"][-1]["num_updates"] if path.exists() else 0


def wait_for_update(save_dir, update, run):
    while updates_in(save_dir) < update:
        assert run.poll() is None, "the run ended too early"
        time.sleep(0.2)


def workers_of(run):
    processes = psutil.Process(run.pid).children(recursive=True)
    return [process for process in processes if torchrun.MODULE not in process.cmdline()]


@pytest.mark.slow
def test_two_processes_match_gradient_of_doubled_batch(data, tmp_path):
    """After one update NAG's momentum is the clipped gradient times the learning rate."""
    assert launch(data, tmp_path / "two", 1).wait() == 0
    expected = train_one(data, tmp_path / "one", 1)["last_optimizer_state"]["state"]
    states = last(tmp_path / "two")["last_optimizer_state"]["state"]
    assert expected.keys() == states.keys()
    assert len(expected) > 10
    for index, state in expected.items():
        gradient = state["momentum_buffer"]
        assert gradient.abs().max() > 0
        torch.testing.assert_close(states[index]["momentum_buffer"], gradient, rtol=1e-5, atol=1e-9)


@pytest.mark.slow
def test_bad_input_of_two_workers_prints_one_sentence(data, tmp_path):
    run = launch(data, tmp_path / "two", 1, "--position-method", "alibo")
    assert run.wait() == 2
    output = (tmp_path / "two.log").read_text()
    assert output.count("error: There is no position method 'alibo'") in (1, 2)  # one per process
    assert "ChildFailedError" not in output


@pytest.mark.slow
def test_killed_and_stopped_processes_lose_no_update(data, tmp_path):
    """Two processes end with the weights of one process with the doubled batch.

    One of the two is killed, and both are stopped later. No update is skipped or repeated.
    """
    folder = tmp_path / "two"
    run = launch(data, folder, 100_000, options=RESTART)
    wait_for_update(folder, 1, run)
    workers = workers_of(run)
    assert len(workers) == 2
    workers[0].send_signal(signal.SIGKILL)
    wait_for_update(folder, updates_in(folder) + 2, run)  # torchrun has started both again
    assert not {worker.pid for worker in workers_of(run)} & {worker.pid for worker in workers}
    run.send_signal(signal.SIGTERM)
    assert run.wait() == STOPPED_EARLY

    updates = updates_in(folder) + 3
    assert launch(data, folder, updates).wait() == 0
    two_processes = last(folder)
    one_process = train_one(data, tmp_path / "one", updates)
    for state, processes in ((one_process, 1), (two_processes, 2)):
        assert state["optimizer_history"][-1]["num_updates"] == updates
        assert state["cfg"]["distributed_training"]["distributed_world_size"] == processes
    weights = two_processes["model"]
    for name, tensor in one_process["model"].items():
        torch.testing.assert_close(weights[name], tensor, rtol=0, atol=1e-5, msg=name)


@pytest.mark.slow
def test_killed_single_process_is_restarted(data, tmp_path):
    folder = tmp_path / "one"
    run = launch(data, folder, 100_000, processes=1, options=RESTART)
    wait_for_update(folder, 1, run)
    (worker,) = workers_of(run)
    worker.send_signal(signal.SIGKILL)
    wait_for_update(folder, updates_in(folder) + 2, run)
    (restarted,) = workers_of(run)
    assert restarted.pid != worker.pid
    run.send_signal(signal.SIGTERM)
    assert run.wait() == STOPPED_EARLY

    updates = updates_in(folder) + 3
    assert launch(data, folder, updates, processes=1, options=RESTART).wait() == 0
    assert updates_in(folder) == updates


@pytest.mark.slow
def test_signal_to_one_launcher_stops_both_with_code_75(data, tmp_path):
    """Each launcher is a node with one process. Only the second one receives the signal."""
    folder = tmp_path / "nodes"
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    options = ["--nodes", "2", "--rdzv-endpoint", f"localhost:{port}", "--rdzv-id", "test"]
    nodes = [launch(data, folder, 100_000, options=options) for _ in range(2)]
    wait_for_update(folder, 1, nodes[0])
    nodes[1].send_signal(signal.SIGUSR1)
    assert [node.wait() for node in nodes] == [STOPPED_EARLY, STOPPED_EARLY]

    updates = updates_in(folder) + 2
    nodes = [launch(data, folder, updates, options=options) for _ in range(2)]
    assert [node.wait() for node in nodes] == [0, 0]
    assert updates_in(folder) == updates
