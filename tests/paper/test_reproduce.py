"""Command ``reproduce``: dry runs, rejected options, resuming, and reruns.

All commands are fakes, except in the last test.
"""

from __future__ import annotations

import json
import os
import random
import re
import shlex
import subprocess
import sys

import pytest
import torch
from commands import ROOT
from data.preparations import books, wikitext_zip
from fakes import Commands, perplexity
from results_documents import cells_of

from alibi_fairseq.cli import main
from alibi_fairseq.experiment import child_process, torchrun
from alibi_fairseq.experiment.runner import execute_experiment
from alibi_fairseq.files import locked
from alibi_fairseq.paper import datasets, reproduction
from alibi_fairseq.paper.items import items, trained_items
from alibi_fairseq.paper.scale import SCALES
from alibi_fairseq.paper.trainings import trainings_for
from alibi_fairseq.results.file import load


@pytest.fixture
def commands(monkeypatch):
    fake = Commands()
    monkeypatch.setattr(child_process, "execute_command", fake)
    monkeypatch.setattr(datasets, "prepare_corpus", fake.prepare_corpus)
    monkeypatch.setattr(datasets, "write_excerpt", fake.write_excerpt)
    monkeypatch.setattr("alibi_fairseq.paper.report.write_report", lambda *_, **__: None)
    return fake


@pytest.fixture
def texts(tmp_path):
    """Return a text in the format of each corpus. None of them is the paper's."""
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "book.txt").write_text("A document.\n\nAnother.\n")
    return {
        "wikitext-103": wikitext_zip(folder / "wikitext-103-v1.zip", folder / "wiki"),
        "bookcorpus": books(folder / "books"),
        "cc100-roberta": folder / "book.txt",
    }


@pytest.fixture
def reproduce(commands, texts, tmp_path):
    """Return a function that reproduces an item from another text.

    The function returns the exit code and the names of the commands that were run.
    """

    def run(item="table12", *options, scale="smoke", work="work"):
        commands.ran = []
        words = [item, "--scale", scale, "--allow-other-text"]
        words += [f"--corpus={name}={path}" for name, path in texts.items()]
        if scale != "smoke" and "--gpus" not in options:
            words += ["--cpu", "1"]
        words += ["--parallel", "1", "--out", str(tmp_path / work)]
        code = main(["reproduce", *words, *options])
        return code, commands.ran

    return run


class TestDryRun:
    @pytest.fixture(autouse=True)
    def nothing_may_run(self, monkeypatch, tmp_path):
        monkeypatch.setattr(child_process, "execute_command", None)
        monkeypatch.chdir(tmp_path)

    @staticmethod
    def lines_of(capsys, *words):
        assert main(["reproduce", *words, "--dry-run"]) == 0
        return capsys.readouterr().out.splitlines()

    @pytest.mark.parametrize("scale", ["paper", "mini", "smoke"])
    def test_dry_run_lists_all_and_writes_nothing(self, tmp_path, capsys, scale):
        lines = self.lines_of(capsys, "all", "--scale", scale)
        commands = [shlex.split(line) for line in lines if line.startswith("python ")]
        assert list(tmp_path.iterdir()) == []
        trainings = [command for command in commands if "train" in command]
        assert len(trainings) == 34
        assert sum("prepare" in command for command in commands) == 3
        # Table 5 by hand: 20 runs of 286,000 × 73,728 tokens and two of 286,000 × 65,536.
        if scale == "paper":
            total = f"{286_000 * (20 * 73_728 + 2 * 65_536):,}"
            assert total in self.lines_of(capsys, "table5")[-1]

    def test_gpu_count_changes_update_division(self, capsys):
        lines = self.lines_of(capsys, "table8", "--gpus", "4")
        assert any("--update-freq 2 " in line for line in lines)

    def test_nodes_share_the_gpus_of_each_run(self, capsys, monkeypatch):
        monkeypatch.delenv("SLURM_JOB_ID", raising=False)
        lines = self.lines_of(capsys, "table12", "--gpus", "128", "--nodes", "16")
        (training,) = [
            shlex.split(line)
            for line in lines
            if "torchrun" in line and line.endswith("sinusoidal-1024 --keep-at 46700")
        ]
        python = training.index("python")
        assert {"srun", "--nodes=16", "--ntasks-per-node=1"} <= set(training[:python])
        nodes = ["--nnodes=16", "--nproc-per-node=8"]
        assert training[python:][2:7] == [
            "alibi_fairseq.experiment.nodes",
            "-m",
            torchrun.MODULE,
            *nodes,
        ]
        assert "--rdzv-endpoint=FIRST_NODE:PORT" in training
        # Intermediate models of Figure 5.
        lines = self.lines_of(capsys, "figure5", "--gpus", "128", "--nodes", "16")
        assert any(line.endswith("--keep-at 10000,20000,30000,40000") for line in lines)

    @pytest.mark.ci
    def test_script_works_from_any_folder(self, tmp_path):
        """Run the script with the Python of the tests first on PATH, as on a cluster node."""
        path = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
        script = [ROOT / "scripts" / "reproduce.sh", "table5", "--dry-run"]
        done = subprocess.run(script, env={**os.environ, "PATH": path}, capture_output=True)
        assert done.returncode == 0
        assert b"wikitext-103/t5-3072" in done.stdout


def rejection(capsys, tmp_path, commands, *words) -> str:
    """Return the message of a run rejected before any work, which leaves at most the lock."""
    work = tmp_path / "work"
    assert main(["reproduce", *map(str, words), "--out", str(work)]) == 2
    files = [path.name for path in work.rglob("*") if path.is_file()] if work.exists() else []
    assert set(files) <= {"lock"}
    assert commands.ran == []
    (line,) = [line for line in capsys.readouterr().err.splitlines() if ": error: " in line]
    return line


@pytest.mark.parametrize(
    ("corpus", "item"), [("bookcorpus", "table8"), ("cc100-roberta", "table12")]
)
def test_different_text_requires_flag(corpus, item, texts, commands, tmp_path, capsys):
    words = [item, "--scale", "smoke", "--corpus", f"{corpus}={texts[corpus]}"]
    assert "--allow-other-text" in rejection(capsys, tmp_path, commands, *words)


def test_different_text_stops_before_training(commands, texts, tmp_path, capsys):
    """Plain text for BookCorpus may be the paper's. This is known after its preparation."""
    words = ["table8", "--cpu", "1", "--corpus", f"bookcorpus={texts['cc100-roberta']}"]
    assert main(["reproduce", *words, "--out", str(tmp_path / "work")]) == 2
    assert "is not the paper's bookcorpus after all" in capsys.readouterr().err
    assert commands.ran == ["prepare"]


def runs(tmp_path):
    return tmp_path / "work" / "smoke" / "runs" / "book-as-documents"


@pytest.mark.ci
def test_reproduce_end_to_end_and_rerun(reproduce, tmp_path, capsys):
    code, ran = reproduce()
    assert code == 0
    assert ran[:3] == ["prepare", "train", "eval"]
    # Two of the six runs are also saved after fewer updates for Table 11, and two at four update
    # counts for Figure 5.
    assert ran.count("train") == 6
    assert ran.count("eval") == 6
    printed = capsys.readouterr().out
    assert "[6/6] cc100-roberta/alibi-2048" in printed
    assert " left)" in printed
    assert "**Not a replication.**" in printed
    rows = cells_of(printed)
    paper = rows.index(["ALiBi, L=512", "paper", "9.79", "9.30", "9.54"])
    best = runs(tmp_path) / "alibi-512" / "checkpoint_best.pt"
    ours = [f"{perplexity(best, length):.2f}" for length in (512, 1024, 2048)]
    assert rows[paper + 1] == ["", "ours (smoke)", *ours]

    assert reproduce() == (0, [])
    printed = capsys.readouterr().out
    assert "All 6 runs already complete." in printed
    assert "ours (smoke)" in printed
    assert "report.md" in printed


@pytest.mark.ci
def test_requests_of_completed_runs_are_kept(reproduce, tmp_path):
    """Changed requests would repeat the training of earlier versions."""
    assert reproduce()[0] == 0
    markers = {path.name for path in (runs(tmp_path) / "sinusoidal-1024").glob("*.json")}
    assert markers == {
        "request.json",
        "training.json",
        "trained-9.json",
        "trained-10.json",
    }
    request = json.loads((runs(tmp_path) / "sinusoidal-1024" / "request.json").read_text())
    assert set(request) == {"recipe", "data_sha256", "excerpt", "vocabulary"}
    assert request["recipe"]["dataset"]["max_tokens"] == 3072
    assert request["recipe"]["distributed_training"]["distributed_world_size"] == 1


@pytest.mark.ci
def test_parallel_runs_match_sequential_runs(reproduce, commands, monkeypatch, capsys):
    """Evaluations write to logs, and each run has one thread."""
    logs = {}

    def run(words, stop_signal, log=None, watch=None, slot=None, **_):
        for command in ("train", "eval"):
            if command in words:
                logs[command] = log
                assert slot.environment["OMP_NUM_THREADS"] == "1"
        return commands(words, log=log, watch=watch)

    monkeypatch.setattr("alibi_fairseq.experiment.slots.cores", lambda: 2)
    monkeypatch.setattr(child_process, "execute_command", run)
    code, ran = reproduce("table12", "--parallel", "2", scale="mini")
    assert code == 0
    assert logs["eval"] is not None
    assert logs["train"] is not None
    assert ran.count("train") == 6
    assert ran.count("eval") == 6
    assert "[6/6]" in capsys.readouterr().out


@pytest.mark.ci
def test_dry_run_lists_unfinished_work_only(reproduce, tmp_path, capsys):
    assert reproduce("table12")[0] == 0
    results = tmp_path / "work" / "smoke" / "results" / "book-as-documents"
    (results / "alibi-512-valid.json").unlink()
    move_away(runs(tmp_path))
    capsys.readouterr()
    assert reproduce("table12", "--dry-run") == (0, [])
    output = capsys.readouterr().out
    assert output.count("alibi_fairseq train ") == 1
    assert output.count("alibi_fairseq eval ") == 2
    assert "4 of 6 runs already complete:\n" in output
    assert output.endswith("2 runs of 20,480 tokens in total\n")


@pytest.mark.ci
def test_evaluations_use_one_of_several_gpus(reproduce, commands, monkeypatch):
    """While one is evaluated, the next model waits, because each needs both GPUs."""
    devices = []

    def run(words, stop_signal=None, log=None, watch=None, slot=None, **_):
        command = "train" if "train" in words else words[words.index("alibi_fairseq") + 1]
        if command in ("train", "eval"):
            devices.append((command, slot.environment["CUDA_VISIBLE_DEVICES"]))
        return commands(words, stop_signal, log, watch, slot)

    monkeypatch.setattr(child_process, "execute_command", run)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert reproduce("table8", "--gpus", "2", scale="paper")[0] == 0
    assert devices == [("train", "0,1"), ("eval", "0")] * 6


@pytest.mark.ci
def test_trainings_and_evaluations_on_several_gpus_are_counted(
    reproduce, commands, monkeypatch, capsys
):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    commands.stop_at = 6  # the preparation, four items, and a training
    assert reproduce("table8", "--gpus", "2", scale="paper")[0] == 75
    commands.stop_at = None
    commands.failing = {("train", "sinusoidal-3072")}
    capsys.readouterr()
    assert reproduce("table8", "--gpus", "2", scale="paper")[0] == 1
    output = capsys.readouterr()
    assert "[5/12] " in output.out
    assert "[13/" not in output.out
    assert "2 of 8 trainings and evaluations did not complete:" in output.err


@pytest.mark.ci
def test_second_table_adds_missing_runs_only(reproduce):
    assert reproduce("table12")[0] == 0
    assert reproduce("table11") == (0, ["eval"] * 2)  # ALiBi at twice its length is in both


@pytest.mark.ci
@pytest.mark.parametrize("number", [1, 2, 5, 12])
def test_reproduce_resumes_from_any_stop(reproduce, commands, capsys, number):
    _, whole = reproduce(work="uninterrupted")
    commands.stop_at = number
    assert reproduce() == (75, whole[:number])
    assert "to resume" in capsys.readouterr().err
    commands.stop_at = None
    assert reproduce() == (0, whole[number - 1 :])


def change_checkpoint(work):
    with (work / "alibi-512" / "checkpoint_best.pt").open("ab") as model:
        model.write(b"!")


def remove_early_checkpoint(work):
    """Restore the state after a kill between 46,700 updates and saving their checkpoint."""
    (work / "sinusoidal-1024" / "checkpoint_9.pt").unlink()
    (work / "sinusoidal-1024" / "trained-9.json").unlink()


def unknown_checkpoint(work):
    (work / "alibi-2048").mkdir()  # in Table 12, not in Table 11
    (work / "alibi-2048" / "checkpoint_last.pt").touch()


@pytest.mark.ci
@pytest.mark.parametrize(
    ("first", "change", "message"),
    [
        ("table12", change_checkpoint, "was changed after the training"),
        ("table12", remove_early_checkpoint, "past 9 updates"),
        ("table11", unknown_checkpoint, "has checkpoints of another training"),
    ],
)
def test_foreign_files_are_rejected(reproduce, tmp_path, capsys, first, change, message):
    assert reproduce(first)[0] == 0
    change(runs(tmp_path))
    assert reproduce()[0] == 2
    assert message in capsys.readouterr().err


def move_away(work):
    (work / "alibi-2048").rename(work.parents[3] / "old")


def rename(work):
    (work / "alibi-512").rename(work / "alibi-512.old")


def change_results(work):
    results = work.parents[1] / "results" / "book-as-documents" / "alibi-512-valid.json"
    results.write_text(
        re.sub(r'("checkpoint_sha256": ".{56}).{8}', r"\g<1>00000000", results.read_text())
    )


@pytest.mark.ci
@pytest.mark.parametrize(
    ("item", "change", "repeated"),
    [
        ("table12", move_away, ["train"]),  # the results of the same weights are known
        ("table12", change_results, ["eval"]),
        ("table12", lambda work: os.utime(work.parents[3] / "texts" / "book.txt", (1, 1)), []),
        ("table11", remove_early_checkpoint, []),  # copied again without training
    ],
)
def test_only_changed_steps_are_repeated(reproduce, tmp_path, item, change, repeated):
    assert reproduce(item)[0] == 0
    change(runs(tmp_path))
    assert reproduce(item) == (0, repeated)
    assert reproduce(item) == (0, [])


def test_job_rejects_unfinished_training(reproduce, commands, tmp_path, capsys):
    """A training that ended early may have left a checkpoint_best.pt."""
    name = "cc100-roberta/alibi-512"
    assert reproduce("table12", "--job", "prepare")[0] == 0
    commands.stop_early = 3
    assert reproduce("table12", "--job", f"train:{name}") == (2, ["train"])
    assert (runs(tmp_path) / "alibi-512" / "checkpoint_best.pt").is_file()
    assert reproduce("table12", "--job", f"evaluate:{name}") == (2, [])
    assert f"{name}: its training is not complete" in capsys.readouterr().err


@pytest.mark.ci
@pytest.mark.parametrize("change", [change_results, rename])
def test_report_has_only_results_of_trained_models(
    reproduce, commands, tmp_path, monkeypatch, change
):
    """Those of a training whose folder was renamed remain until the next one is evaluated."""
    reports = []
    monkeypatch.setattr(
        "alibi_fairseq.paper.report.write_report", lambda results, *_, **__: reports.append(results)
    )
    assert reproduce()[0] == 0
    change(runs(tmp_path))
    commands.failing = {("train", "alibi-512"), ("eval", "alibi-512")}
    assert reproduce()[0] == 1
    rows = cells_of((tmp_path / "work/smoke/report/smoke-table12.md").read_text())
    paper = rows.index(["ALiBi, L=512", "paper", "9.79", "9.30", "9.54"])
    assert rows[paper + 1] == ["", "ours (smoke)", "missing", "missing", "missing"]
    before, after = reports
    assert len(after.results) == len(before.results) - 3
    assert "alibi-512-valid.json" in {path.name for path, _ in before.files}
    assert "alibi-512-valid.json" not in {path.name for path, _ in after.files}


def test_concurrent_use_of_folder_is_rejected(reproduce, tmp_path):
    with locked(tmp_path / "work" / "smoke" / "lock", "--out", "command"):
        assert reproduce() == (2, [])


@pytest.mark.ci
@pytest.mark.parametrize("genuine", [True, False])
def test_paper_text_gives_no_warning(reproduce, commands, capsys, genuine):
    commands.genuine = genuine
    assert reproduce("table12", scale="paper")[0] == 0
    printed = capsys.readouterr().out
    assert ("Not a replication" in printed) == (not genuine)
    assert ("text 'some-text'" in printed) == (not genuine)
    assert "| ALiBi, L=512" in printed
    assert ("ours (" in printed) == (not genuine)


@pytest.mark.ci
def test_every_table_and_figure_has_numbers(reproduce, tmp_path):
    assert reproduce("all")[0] == 0
    report = tmp_path / "work" / "smoke" / "report"
    pages = {path.name: path.read_text() for path in report.glob("smoke-*.md")}
    assert set(pages) == {f"smoke-{item}.md" for item in trained_items()}
    assert len(items()) == 15 + 11
    for name, text in pages.items():
        assert "ours (smoke)" in text, name
        assert "missing" not in text, name


@pytest.mark.slow
def test_single_run_from_text_to_report(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    text = tmp_path / "generated.txt"
    rng = random.Random(1)
    words = ["".join(rng.choices("etaoinshrdlu", k=rng.randint(2, 9))) for _ in range(2000)]
    lines = [" ".join(rng.choices(words, k=rng.randint(5, 25))) for _ in range(1500)]
    text.write_text("".join(f"{line}.\n\n" for line in lines))
    recipe = "cc100-roberta/sinusoidal-1024"
    trainings = trainings_for(("table11", "table12"))
    (training,) = [training for training in trainings if training.recipe.path == recipe]
    root = tmp_path / "work"
    scale = SCALES["smoke"]
    dataset = datasets.PaperDataset(root / "data", "cc100-roberta", text, True, scale)
    experiment = reproduction.ReproductionExperiment(
        folder=root,
        items=(),
        trainings=[training],
        data={"cc100-roberta": dataset},
        scale=scale,
        devices=reproduction.DeviceConfig(1, cpu=True),
    )
    assert execute_experiment(experiment) == 0
    results = load(experiment.results_path(training.recipe, "valid"))
    measured = set()
    for record in results.results:
        assert record.case.corpus == "generated-smoke"
        assert record.series.method.notation == "sinusoidal"
        assert 2 < record.values.perplexity < 5000
        measured.add((record.updates, record.case.length))
    assert measured == {(9, 1024), (10, 1024), (10, 2048)}
    assert "generated-smoke is not a text of the paper" in experiment.page.read_text()
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*.pt")}
    assert execute_experiment(experiment) == 0
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*.pt")} == before
