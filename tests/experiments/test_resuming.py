"""What is done is not done again, what has changed is; all commands are stand-ins."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections import namedtuple

import pytest
from results_documents import cells_of
from stand_ins import Commands, perplexity

from alibi_fairseq.cli import main
from alibi_fairseq.experiments import command, paper_tables
from alibi_fairseq.files import locked


@pytest.fixture
def commands(monkeypatch):
    stand_ins = Commands()
    monkeypatch.setattr(command, "execute", stand_ins)
    monkeypatch.setattr(paper_tables, "write_report", lambda *_, **__: None)
    return stand_ins


@pytest.fixture(autouse=True)
def large_disk(monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(0, 0, 10**13))


@pytest.fixture
def reproduce(commands, tmp_path):
    """Runs a table at the smallest scale; returns the exit code and the commands that ran."""
    book = tmp_path / "book.txt"
    book.write_text("A text.\n")

    def run(item="table12", scale="smoke", work="work"):
        commands.ran = []
        given = ["--corpus", f"cc100-roberta={book}", "--allow-other-text"]
        machine = [] if scale == "smoke" else ["--cpu", "1"]
        machine += ["--parallel", "1"]
        words = [item, "--scale", scale, *given, *machine, "--work-dir", str(tmp_path / work)]
        return main(["reproduce", *words]), commands.ran

    return run


def runs(tmp_path):
    return tmp_path / "work" / "smoke" / "runs" / "book-as-documents"


def test_everything_in_its_order_and_a_second_run_does_nothing_and_says_so(
    reproduce, tmp_path, capsys
):
    code, ran = reproduce()
    assert code == 0
    assert ran[:2] == ["alibi_fairseq prepare", "alibi_fairseq.data.excerpt"]
    assert ran[2:4] == ["alibi_fairseq train", "alibi_fairseq eval"]
    # Six runs: two are also kept after fewer updates for Table 11, two at four times for Figure 5.
    assert ran.count("alibi_fairseq train") == 6 + 2 + 2 * 4
    assert ran.count("alibi_fairseq eval") == 6
    said = capsys.readouterr().out
    assert "[6/6] cc100-roberta/alibi-2048" in said and "min left" in said
    assert "**Not a replication.**" in said and "ours (smoke)" in said
    rows = cells_of(said)
    paper = rows.index(["ALiBi, L=512", "paper", "9.79", "9.30", "9.54"])
    best = runs(tmp_path) / "alibi-512" / "checkpoint_best.pt"
    ours = [f"{perplexity(best, length):.2f}" for length in (512, 1024, 2048)]
    assert rows[paper + 1] == ["", "ours (smoke)", *ours]

    assert reproduce() == (0, [])
    said = capsys.readouterr().out
    assert "All 6 runs are done already." in said
    assert "ours (smoke)" in said and "report.md" in said


def test_runs_in_parallel_leave_what_runs_in_order_leave(commands, tmp_path, monkeypatch, capsys):
    """Evaluations write to logs, and each run has one thread."""
    (tmp_path / "book.txt").write_text("A text.\n")
    logs = {}

    def run(command, ask, log=None, watch=None, place=None):
        verb = next((verb for verb in ("train", "eval") if verb in command), "other")
        logs[verb] = log
        assert verb == "other" or place.environment["OMP_NUM_THREADS"] == "1"
        return commands(command)

    monkeypatch.setattr("alibi_fairseq.experiments.runner.cores", lambda: 2)
    monkeypatch.setattr(command, "execute", run)
    words = ["table12", "--scale", "mini", "--parallel", "2", "--allow-other-text"]
    words += ["--corpus", f"cc100-roberta={tmp_path / 'book.txt'}", "--work-dir", str(tmp_path)]
    assert main(["reproduce", *words]) == 0
    assert logs["eval"] is not None and logs["train"] is not None
    assert commands.ran.count("alibi_fairseq train") == 6 + 2 + 2 * 4
    assert commands.ran.count("alibi_fairseq eval") == 6
    printed = capsys.readouterr().out
    assert "[6/6]" in printed and "ours (mini)" in printed


def test_another_table_adds_only_what_it_needs(reproduce, tmp_path):
    assert reproduce("table12")[0] == 0
    code, ran = reproduce("table11")
    assert code == 0
    # ALiBi at twice its training length is in both.
    assert ran == ["alibi_fairseq eval"] * 2
    assert (runs(tmp_path) / "sinusoidal-1024" / "checkpoint_9.pt").is_file()


@pytest.mark.parametrize("number", [1, 2, 3, 4, 6, 17])
def test_stopped_anywhere_it_goes_on_from_there(reproduce, commands, capsys, number):
    _, whole = reproduce(work="uninterrupted")
    commands.stop_at = number
    code, ran = reproduce()
    assert code == 75 and ran == whole[:number]
    assert "resumes from here" in capsys.readouterr().err
    commands.stop_at = None
    assert reproduce() == (0, whole[number - 1 :])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
def test_a_signal_between_two_commands_is_no_failure(reproduce, commands, number, monkeypatch):
    def told(command, *arguments, **more):
        os.kill(os.getpid(), number)
        return 0

    before = signal.getsignal(number)
    monkeypatch.setattr(command, "execute", told)
    assert reproduce()[0] == 75
    assert signal.getsignal(number) == before


def test_a_failure_keeps_its_code_and_names_the_log(reproduce, commands, monkeypatch, capsys):
    def fails(command, *arguments, **more):
        return 3 if "train" in command else commands(command)

    monkeypatch.setattr(command, "execute", fails)
    assert reproduce()[0] == 3
    said = capsys.readouterr().err
    assert "failed with exit code 3" in said and "train.log" in said


def test_a_checkpoint_that_was_changed_is_not_taken_for_the_trainings(reproduce, tmp_path, capsys):
    assert reproduce()[0] == 0
    model = runs(tmp_path) / "alibi-512" / "checkpoint_best.pt"
    model.write_bytes(model.read_bytes() + b"!")
    assert reproduce() == (2, [])
    assert "was changed after the training" in capsys.readouterr().err


def test_a_run_that_is_moved_away_is_made_again(reproduce, tmp_path):
    assert reproduce()[0] == 0
    (runs(tmp_path) / "alibi-2048").rename(tmp_path / "old")
    assert reproduce() == (0, ["alibi_fairseq train", "alibi_fairseq eval"])
    assert reproduce() == (0, [])


def test_results_of_another_model_are_measured_again(reproduce, commands, tmp_path):
    assert reproduce()[0] == 0
    results = tmp_path / "work" / "smoke" / "results" / "book-as-documents" / "alibi-512-valid.json"
    document = json.loads(results.read_text())
    for cell in document["cells"]:
        cell["checkpoint_sha256"] = "0" * 64
    results.write_text(json.dumps(document))
    assert reproduce() == (0, ["alibi_fairseq eval"])  # with the very same results


def test_checkpoints_of_unknown_origin_are_refused_before_any_work(reproduce, tmp_path, capsys):
    assert reproduce("table11")[0] == 0
    folder = runs(tmp_path) / "alibi-2048"  # in Table 12, not in Table 11
    folder.mkdir()
    (folder / "checkpoint_last.pt").touch()
    assert reproduce("table12") == (2, [])
    assert "holds checkpoints of another training" in capsys.readouterr().err


def test_other_text_under_the_same_name_is_refused(reproduce, tmp_path, capsys):
    assert reproduce()[0] == 0
    (tmp_path / "book.txt").write_text("B text.\n")
    assert reproduce() == (2, [])
    assert "prepared from other text" in capsys.readouterr().err


def test_a_file_that_only_looks_newer_is_the_same(reproduce, tmp_path):
    assert reproduce()[0] == 0
    os.utime(tmp_path / "book.txt", (1, 1))
    assert reproduce() == (0, [])


def test_a_killed_copy_of_a_model_is_made_again_without_training(reproduce, tmp_path):
    """Killed between the end of a training to 46,700 updates and keeping its model."""
    assert reproduce("table11")[0] == 0
    folder = runs(tmp_path) / "sinusoidal-1024"
    (folder / "checkpoint_9.pt").unlink()
    (folder / "trained-9.json").unlink()
    code, ran = reproduce("table11")
    assert code == 0 and "alibi_fairseq train" not in ran
    assert (folder / "checkpoint_9.pt").is_file()


def test_a_run_that_has_passed_an_age_cannot_go_back(reproduce, tmp_path, capsys):
    assert reproduce("table12")[0] == 0
    folder = runs(tmp_path) / "sinusoidal-1024"
    (folder / "checkpoint_9.pt").unlink()
    (folder / "trained-9.json").unlink()
    assert reproduce("table12") == (2, [])
    assert "past 9 updates" in capsys.readouterr().err


def test_two_at_once_in_one_folder_are_refused(reproduce, tmp_path, capsys):
    with locked(tmp_path / "work" / "smoke" / "lock", "--work-dir", "command"):
        assert reproduce() == (2, [])
    assert "--work-dir: another command" in capsys.readouterr().err


def test_the_papers_runs_on_the_papers_text_come_without_a_warning(reproduce, commands, capsys):
    commands.genuine = True
    assert reproduce("table12", "paper")[0] == 0
    said = capsys.readouterr().out
    assert "Not a replication" not in said
    assert "| ALiBi, L=512" in said and "ours (" not in said


def test_the_papers_runs_on_other_text_come_with_one(reproduce, capsys):
    assert reproduce("table12", "paper")[0] == 0
    said = capsys.readouterr().out
    assert "**Not a replication.**" in said and "text 'some-text'" in said
