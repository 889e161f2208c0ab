"""SLURM jobs: their options, dependencies, and results, compared with one machine."""

import os
import re
import shlex
import signal
import threading
from contextlib import ExitStack
from types import SimpleNamespace

import pytest
import torch
import yaml
from fakes import TINY, Commands

from alibi_fairseq.cli import main
from alibi_fairseq.experiment import child_process, slurm
from alibi_fairseq.experiment.plan import Plan
from alibi_fairseq.experiment.slots import DEFAULT_SLOT, Resources, Slot
from alibi_fairseq.files import locked

submitit = pytest.importorskip("submitit")
FAKE = {
    "sbatch": 'n=$(ls "$LOG" | wc -l); cp "$1" "$LOG/$n"; echo "Submitted batch job $((100 + n))"',
    "srun": "exit 1",
}


@pytest.fixture
def scripts(tmp_path, monkeypatch):
    """Return the folder of the scripts that the fake sbatch receives."""
    for name, body in FAKE.items():
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/usr/bin/env bash\n{body}\n")
        path.chmod(0o755)
    (tmp_path / "log").mkdir()
    monkeypatch.setenv("LOG", str(tmp_path / "log"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return tmp_path / "log"


def compare(data, out, *extra_options):
    options = ["--methods", "alibi,none", "--train-lengths", "16", "--lengths", "16,32"]
    options += ["--updates", "4", "--tokens-per-update", "128", "--train-flags", TINY]
    return ["compare", str(data), "--out", str(out), *options, *extra_options]


def test_submit_runs_as_array_and_report_last(scripts, data_bin, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(slurm.MODULES, "cuda/12.4 gcc")
    monkeypatch.setenv(slurm.CONDA, "mine")
    out = tmp_path / "out"
    options = ["--slurm-option", "partition=gpu", "--slurm-option", "mem=64G", "--parallel", "1"]
    assert main([*compare(data_bin, out, "--slurm"), *options]) == 0
    # The data is prepared already, and the first job checks that its settings are the same.
    assert "training and evaluating: 2 jobs in array 101" in capsys.readouterr().out
    preparation = (scripts / "0").read_text()
    runs = (scripts / "1").read_text()
    report = (scripts / "2").read_text()
    for script in (runs, report):
        for line in ("--partition=gpu", "--mem=64G", "--requeue", "--signal=USR1@180"):
            assert f"#SBATCH {line}\n" in script
        assert "#SBATCH --kill-on-invalid-dep=yes\n" in script
        assert "export SRUN_CPUS_PER_TASK=" in script
        assert "module load cuda/12.4 gcc || exit\n" in script
        assert "conda activate mine" in script
        assert "#SBATCH --time=24:00:00\n" in script
    assert "#SBATCH --array=0-1%1\n" in runs
    assert "#SBATCH --gpus-per-node=1\n" in runs
    assert "dependency" not in preparation
    assert "#SBATCH --dependency=afterok:100\n" in runs
    assert "gpus" not in report
    assert "#SBATCH --dependency=afterok:100,afterany:101\n" in report
    job = f"run:{data_bin.parent.name}/none-16-seed1"
    yaml_file = str(out / "experiment.yaml")
    words = ["compare", "--job", job, yaml_file, "--out", str(out)]
    assert words_of_job(out, "101_1") == words


def words_of_job(out, number):
    pickled = out / "jobs" / number / f"{number}_submitted.pkl"
    (words,) = submitit.core.utils.DelayedSubmission.load(pickled).args
    return words


@pytest.mark.ci
def test_jobs_have_the_settings_of_their_submission(scripts, data_bin, tmp_path, monkeypatch):
    """An edit of the file between submission and run changes no job."""
    commands = Commands()
    monkeypatch.setattr(child_process, "execute_command", commands)
    out = tmp_path / "out"
    values = {
        "corpora": [{"name": data_bin.parent.name, "data": str(data_bin)}],
        "methods": ["alibi", "none"],
        "train_lengths": 16,
        "eval_lengths": [16, 32],
        "updates": 4,
        "tokens_per_update": 128,
        "train_flags": TINY,
    }
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(values))
    assert main(["compare", str(path), "--out", str(out), "--slurm"]) == 0
    path.write_text(yaml.safe_dump({**values, "updates": 5, "methods": "rotary"}))
    for number in ("100", "101_0", "101_1", "102"):
        assert main(words_of_job(out, number)) == 0
    assert [updates for *_, updates in commands.trained] == [4, 4]
    assert "| No positions, L=16" in (out / "table.md").read_text()
    commands.ran.clear()
    assert main(compare(data_bin, out)) == 0  # on one machine
    assert commands.ran == []


@pytest.mark.parametrize(
    ("given", "later"),
    [("afterok:7", "afterok:7,{}"), ("afterok:7?afterany:8", "{}")],
)
def test_users_dependency_keeps_order_of_stages(scripts, data_bin, tmp_path, capsys, given, later):
    words = [*compare(data_bin, tmp_path / "out", "--slurm"), "--slurm-option"]
    words.append(f"dependency={given}")
    expected = [given, later.format("afterok:100"), later.format("afterok:100,afterany:101")]
    assert main(words) == 0
    for number, dependency in enumerate(expected):
        script = (scripts / str(number)).read_text()
        assert f"#SBATCH --dependency={shlex.quote(dependency)}\n" in script

    capsys.readouterr()
    assert main([*words, "--dry-run"]) == 0
    printed = re.findall(r"--dependency=(\S+)", capsys.readouterr().out)
    expected = [given, later.format("afterok:N1"), later.format("afterok:N1,afterany:N2")]
    assert printed == expected


def test_dry_run_lists_jobs_and_writes_nothing(scripts, data_bin, tmp_path, capsys):
    text = tmp_path / "a.txt"
    text.write_text("some text\n")
    out = tmp_path / "out"
    options = ["--slurm-option", "gpus-per-node=0", "--slurm", "--dry-run"]
    assert main([*compare(text, out), *options]) == 0
    output = capsys.readouterr().out
    assert "# preparing the data: 1 job\n# sbatch --time=24:00:00 --cpus-per-task=4\n" in output
    assert "# training and evaluating: 2 jobs, after 'preparing the data'\n" in output
    assert output.count("\nrun:a/") == 2
    assert "\nreport\n" in output
    assert not out.exists()
    assert not list(scripts.iterdir())

    words = ["reproduce", "table8", "--scale", "smoke", "--allow-other-text"]
    words += ["--corpus", f"bookcorpus={text}", "--out", str(out)]
    assert main([*words, "--slurm", "--dry-run", "--cpu", "1"]) == 0
    output = capsys.readouterr().out
    assert output.count("\nrun:bookcorpus/") == 6
    assert "--gpus-per-node" not in output
    words[3] = "paper"
    assert main([*words, "--slurm", "--dry-run", "--gpus", "8"]) == 0
    output = capsys.readouterr().out
    # The evaluation of a model uses one GPU, so it must not hold those of its training.
    assert options_of(output, "training") == (
        "--time=24:00:00 --cpus-per-task=16 --mem=128G --gpus-per-node=8 --dependency=afterok:N1"
    )
    assert options_of(output, "evaluating") == (
        "--time=24:00:00 --cpus-per-task=4 --mem=16G --gpus-per-node=1 "
        "--dependency=afterok:N1,afterany:N2"
    )
    for work in ("train", "evaluate"):
        assert output.count(f"\n{work}:bookcorpus/") == 6
    assert "# evaluating: 6 jobs, after 'training'\n" in output
    assert "# reporting: 1 job, after 'evaluating'\n" in output
    assert not out.exists()


def options_of(output, stage):
    """Return the options of ``sbatch`` of a stage in a dry run."""
    (options,) = re.findall(rf"# {stage}: .*\n# sbatch (.*)", output)
    return options


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], "--mem=248G --gpus-per-node=8"),
        (["mem=0"], "--gpus-per-node=8 --mem=0"),
        (["mem-per-cpu=8G"], "--gpus-per-node=8 --mem-per-cpu=8G"),
        (["gres=gpu"], "--mem=248G --gres=gpu:8"),
        (["gres=gpu:v100"], "--mem=248G --gres=gpu:v100:8"),
        (["gres=gpu:4"], "--mem=248G --gres=gpu:4"),
    ],
)
def test_stage_with_several_nodes(tmp_path, capsys, given, expected):
    words = ["reproduce", "table11", "--slurm", "--dry-run", "--out", str(tmp_path / "out")]
    words += ["--gpus", "128", "--nodes", "16"]
    for option in given:
        words += ["--slurm-option", option]
    assert main(words) == 0
    output = capsys.readouterr().out
    start = "--time=24:00:00 --cpus-per-task=16 --nodes=16 --ntasks-per-node=1"
    assert options_of(output, "training") == f"{start} {expected} --dependency=afterok:N1"
    assert "--nodes" not in options_of(output, "evaluating")


def test_submit_one_process_on_the_first_of_several_nodes(scripts, tmp_path):
    run = SimpleNamespace(name="a", after=(), is_complete=False, is_trained=False)
    experiment = SimpleNamespace(
        folder=tmp_path / "out",
        folder_option="--out",
        prepared=True,
        plan=lambda: Plan((run,)),
        resources=Resources(gpus=8, nodes=2, processes=8, memory_gb=17),
    )
    slurm.submit(experiment, lambda: ["reproduce"], {}, None)
    _, training, evaluating, _ = [path.read_text() for path in sorted(scripts.iterdir())]
    assert "#SBATCH --nodes=2\n" in training
    assert " --overlap --nodes=1 --ntasks=1 " in training
    assert "#SBATCH --nodes=1\n" in evaluating
    assert "--overlap" not in evaluating


def test_jobs_train_or_evaluate(monkeypatch):
    """A job that evaluates uses one GPU, even if it has those of the training."""
    done = []
    run = SimpleNamespace(
        name="a",
        train=lambda slot: done.append(("train", slot)),
        evaluate=lambda slot: done.append(("evaluate", slot)),
    )
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    experiment = SimpleNamespace(resources=Resources(gpus=2), plan=lambda: Plan((run,)))
    for work in ("train", "evaluate"):
        assert slurm.run_job(experiment, f"{work}:a") == 0
    assert done == [
        ("train", DEFAULT_SLOT),
        ("evaluate", Slot({"CUDA_VISIBLE_DEVICES": "0"})),
    ]


def test_first_job_waits_for_the_end_of_the_submission(tmp_path):
    """It may start while the command that submitted it still submits the later stages."""
    events = []
    experiment = SimpleNamespace(
        folder=tmp_path, folder_option="--out", prepare=lambda: events.append("prepared")
    )
    with ExitStack() as submission:
        submission.enter_context(locked(tmp_path / "lock", "--out", "command"))
        submission.callback(events.append, "submitted")
        end = threading.Timer(1, submission.close)
        end.start()
        try:
            assert slurm.run_job(experiment, "prepare") == 0
        finally:
            end.join()
    assert events == ["submitted", "prepared"]


def test_report_names_runs_that_are_not_complete(data_bin, tmp_path, monkeypatch, capsys):
    commands = Commands()
    commands.failing = {("train", "none-16-seed1")}
    monkeypatch.setattr(child_process, "execute_command", commands)
    out = tmp_path / "out"
    for method in ("alibi", "none"):
        job = f"run:{data_bin.parent.name}/{method}-16-seed1"
        assert main(compare(data_bin, out, "--job", job)) == (method == "none")
    assert main(compare(data_bin, out, "--job", "report")) == 2
    name = f"{data_bin.parent.name}/none-16-seed1"
    assert f"not complete: {name}. Submit" in capsys.readouterr().err
    table = (out / "table.md").read_text()
    assert "| ALiBi, L=16 " in table
    assert "- No positions, L=16: its training is not complete (log: " in table


@pytest.mark.ci
def test_jobs_and_one_machine_resume_each_other(data_bin, tmp_path, monkeypatch, capsys):
    commands = Commands()
    monkeypatch.setattr(child_process, "execute_command", commands)
    out = tmp_path / "out"
    name = f"{data_bin.parent.name}/alibi-16-seed1"
    assert main(compare(data_bin, out, "--slurm", "--job", f"run:{name}")) == 0
    assert commands.ran == ["train", "eval"]
    assert main(compare(data_bin, out)) == 0  # the rest on one machine
    assert commands.ran == ["train", "eval", "train", "eval"]
    (out / "table.md").unlink()
    assert main(compare(data_bin, out, "--job", "report")) == 0
    assert "| ALiBi, L=16" in (out / "table.md").read_text()
    assert main([*compare(data_bin, out), "--slurm", "--dry-run"]) == 0
    assert "run:" not in capsys.readouterr().out.partition("# reporting")[0]


@pytest.mark.parametrize(("visible", "expected"), [(None, "0"), ("5,6,7,8", "5")])
def test_job_on_whole_node_uses_one_gpu(data_bin, tmp_path, monkeypatch, visible, expected):
    """fairseq would train on all visible GPUs, and read four times the tokens of an update."""
    commands = Commands()
    devices = []
    shown = []

    def execute(words, stop_signal=None, log=None, watch=None, slot=None, show_errors=False):
        devices.append(slot.environment.get("CUDA_VISIBLE_DEVICES"))
        shown.append(show_errors)
        return commands(words, stop_signal, log, watch, slot)

    monkeypatch.setattr(child_process, "execute_command", execute)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    job = f"run:{data_bin.parent.name}/alibi-16-seed1"
    assert main(compare(data_bin, tmp_path / "out", "--job", job)) == 0
    assert commands.ran == ["train", "eval"]
    assert devices == [expected, expected]
    assert shown == [False, True]  # an evaluation shows its progress, since nothing is concurrent


@pytest.mark.parametrize(("device_count", "gpus"), [(0, 1), (1, 1), (2, 4), (4, 0)])
def test_job_without_spare_gpus_keeps_environment(monkeypatch, device_count, gpus):
    """A slot cannot assign GPUs that are missing, nor replace the threads of a CPU job."""
    slots = []
    run = SimpleNamespace(name="a", execute=slots.append)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: device_count)
    experiment = SimpleNamespace(resources=Resources(gpus=gpus), plan=lambda: Plan((run,)))
    assert slurm.run_job(experiment, "run:a") == 0
    assert slots == [DEFAULT_SLOT]


def test_warned_job_saves_and_requeues(monkeypatch, capsys):
    requeued = []

    def stopped(words, slot):
        os.kill(os.getpid(), stopped.signal)
        return slurm.STOPPED_EARLY if slot.stop.count else 0

    monkeypatch.setattr(slurm, "execute_command", stopped)
    environment = SimpleNamespace(_requeue=requeued.append)
    monkeypatch.setattr(submitit, "JobEnvironment", lambda: environment)
    stopped.signal = signal.SIGUSR1
    with pytest.raises(SystemExit) as ended:
        slurm.execute_with_requeue(["eval"])
    assert not ended.value.code
    assert len(requeued) == 1
    stopped.signal = signal.SIGTERM  # scancel, or SLURM requeues the job itself
    with pytest.raises(RuntimeError, match="failed with exit code 75"):
        slurm.execute_with_requeue(["eval"])
    assert len(requeued) == 1
