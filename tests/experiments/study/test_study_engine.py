"""A study over several sittings; the commands are stand-ins that leave what the real ones leave."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from commands import ROOT
from results_documents import document

from alibi_fairseq.cli import main
from alibi_fairseq.errors import STOPPED_EARLY
from alibi_fairseq.experiments import command
from alibi_fairseq.experiments.study import data as study_data
from alibi_fairseq.experiments.study import runs as study_runs
from alibi_fairseq.results.schema import load_document, save_document

DESCRIPTION = {
    "title": "A small study",
    "corpora": [
        {"name": name, "layout": "text", "documents": "empty-lines", "vocabulary": 100, "train": 9}
        | {"test": [3, 9]}
        for name in ("tales", "notes")
    ],
    "training": {"updates": 10, "tokens_per_update": 64, "lr": 0.002},
    "tests": {
        "factors": [1, 2, 16],
        "beyond": [50],
        "longest": 300,
        "sliding": [1, 2],
        "sliding_longest": 32,
        "sliding_tokens": 5,
    },
    "parts": [
        {"corpus": "tales", "methods": ["alibi", "sinusoidal"], "train_lengths": [16]},
        {"corpus": "notes", "methods": ["alibi"], "train_lengths": [16]},
        {"corpus": "tales", "methods": ["rotary", "alibi"], "train_lengths": [16, 64]},
    ],
}
ORDER = ["tales-alibi-16", "tales-sinusoidal-16", "notes-alibi-16", "tales-rotary-16"]


class Commands:
    """Stands for ``command.execute``."""

    def __init__(self):
        self.ran: list[str] = []
        self.stop_at: int | None = None

    def __call__(self, command: list[str], *arguments, **more) -> int:
        words = command[command.index("-m") + 1 :]
        verb = "train" if words[1] == "train" else "evaluate"
        folder = Path(value(words, "--save-dir" if verb == "train" else "--out"))
        self.ran.append(f"{verb} {(folder if verb == 'train' else folder.parent).name}")
        if self.stop_at == len(self.ran):
            return STOPPED_EARLY
        getattr(self, verb)(words, folder)
        return 0

    def train(self, words: list[str], folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        torch.save({"of": str(folder)}, folder / "checkpoint_last.pt")
        cell = facts(words) | {"updates": 10, "subset": "valid", "loss_bits": 6.0, "hours": 0.1}
        save_document(document(cell, kind="training"), folder / "training.json")

    def evaluate(self, words: list[str], folder: Path) -> None:
        folder.mkdir(parents=True)
        name = folder.parent.name.split("-")
        common = {"position_method": name[1], "train_length": int(name[2]), "subset": "test"}
        cells, positions = [], []
        for length, stride in ((16, 16), (32, 32), (64, 64), (256, 256), (16, 1), (32, 1)):
            case = common | {"length": length, "stride": stride, "tokens": 30, "loss_bits": 4.0}
            sums = {"document_tokens": [10, 20], "document_bits": [41.0, 79.0]}
            cells.append(case | sums | {"perplexity": 16.0})
            positions.append(case | {"position_from": 0, "position_to": length})
        save_document(document(*cells), folder / "evaluation.json")
        save_document(document(*positions, kind="position_loss"), folder / "position_loss.json")


def facts(words: list[str]) -> dict:
    return {
        "position_method": value(words, "--position-method"),
        "train_length": int(value(words, "--tokens-per-sample")),
    }


def value(words: list[str], flag: str) -> str:
    return words[words.index(flag) + 1]


@pytest.fixture
def commands(monkeypatch, tmp_path):
    def prepare(corpus, source, folder):
        out = folder / f"{source.stem}-study"
        out.mkdir(parents=True, exist_ok=True)
        for name in ("train.bin", "test.bin", "dict.txt"):
            (out / name).write_text(source.read_text())
        return out

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(study_data, "prepare", prepare)
    monkeypatch.setattr(
        study_data,
        "prepared",
        lambda corpus, source, folder: next(folder.glob("*-study"), None),
    )
    stand_ins = Commands()
    monkeypatch.setattr(command, "execute", stand_ins)
    Path("study.yaml").write_text(yaml.safe_dump(DESCRIPTION))
    for name in ("tales", "notes"):
        Path(f"{name}.txt").write_text(f"text of {name}")
    return stand_ins


def study(*flags: str) -> int:
    return main(["study", "study.yaml", "--results", "results", "--parallel", "1", *flags])


TALES, NOTES = ("--corpus", "tales=tales.txt"), ("--corpus", "notes=notes.txt")


def trained(commands: Commands) -> list[str]:
    found = [line.split()[1].removesuffix("-seed1") for line in commands.ran]
    return list(dict.fromkeys(found))


def test_cells_are_carried_out_in_their_order_and_kept(commands):
    assert study(*TALES, *NOTES) == 0
    assert trained(commands) == [*ORDER, "tales-rotary-64", "tales-alibi-64"]
    cells = Path("results/cells")
    assert {path.name for path in cells.iterdir()} == {f"{n}-seed1" for n in trained(commands)}
    folder = cells / "tales-alibi-16-seed1"
    assert sorted(path.name for path in folder.iterdir()) == [
        *("cell.json", "evaluation.json", "position_loss.json", "training.json")
    ]
    found = load_document(folder / "evaluation.json")["cells"][0]
    assert found["train_command"].startswith("python -m alibi_fairseq train runs/study/tales/")
    page = Path("results/README.md").read_text()
    assert "6 of 6 are finished" in page and "## Not run yet" not in page
    commands.ran.clear()
    assert study(*TALES, *NOTES) == 0 and not commands.ran
    assert Path("results/README.md").read_text() == page


def test_finished_cells_are_known_where_they_were_not_trained(commands):
    study(*TALES, "--cells", "tales-alibi-*")
    assert trained(commands) == ["tales-alibi-16", "tales-alibi-64"]
    commands.ran.clear()
    assert study(*TALES, *NOTES, "--work-dir", "elsewhere") == 0
    assert trained(commands) == [*ORDER[1:], "tales-rotary-64"]
    assert study("--work-dir", "third") == 0  # without a text: the page alone


def test_cells_are_trained_where_no_figures_can_be_drawn(commands, monkeypatch, capsys):
    with monkeypatch.context() as without:
        without.setattr(study_runs, "find_spec", lambda name: None)
        assert study(*NOTES) == 0
    assert "matplotlib is not installed" in capsys.readouterr().out
    assert [path.name for path in Path("results").iterdir()] == ["cells"]
    assert study() == 0
    assert "1 of 6 are finished" in Path("results/README.md").read_text()


def test_nothing_that_trains_or_evaluates_needs_matplotlib():
    """As on a borrowed GPU machine, where only what training needs is installed."""
    without = "import sys; sys.modules['matplotlib'] = None; "
    modules = (
        "import alibi_fairseq.experiments.study.runs, alibi_fairseq.experiments.study.evaluate"
    )
    subprocess.run([sys.executable, "-c", without + modules], check=True, cwd=ROOT)


def test_cells_made_with_other_settings_or_text_are_refused(commands, capsys):
    study(*TALES, "--cells", "tales-alibi-16-*")
    Path("tales.txt").write_text("other text")
    assert study(*TALES, "--work-dir", "elsewhere") == 2
    assert (
        "holds a cell that was made with other settings (data differs)" in capsys.readouterr().err
    )
    description = json.loads(json.dumps(DESCRIPTION))
    description["training"]["updates"] = 11
    Path("study.yaml").write_text(yaml.safe_dump(description))
    assert study(*NOTES) == 2
    assert "other settings (options differs); choose another --results" in capsys.readouterr().err


def test_a_stopped_study_goes_on(commands):
    commands.stop_at = 4
    assert study(*TALES) == 75
    assert len(list(Path("results/cells").iterdir())) == 1
    assert "1 of 6 are finished" in Path("results/README.md").read_text()
    commands.stop_at = None
    assert study(*TALES) == 0
    assert len(list(Path("results/cells").iterdir())) == 5
    assert commands.ran.count("train tales-sinusoidal-16-seed1") == 1


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--corpus", "tables=tales.txt"], "one of the names tales, notes, not 'tables=tales.txt'"),
        (["--corpus", "tales=none.txt"], "there is no such file or folder"),
        (["--hours", "0"], "--hours must be above 0"),
        (["--parallel", "0"], "--parallel must be at least 1"),
    ],
)
def test_bad_input_is_one_sentence(commands, capsys, flags, message):
    assert study(*flags) == 2
    assert message in capsys.readouterr().err and not commands.ran


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"parts": [{"corpus": "poems", "methods": "alibi"}]}, "there is no corpus 'poems'"),
        ({"tests": {}}, "study.yaml: factors"),
        ({"corpora": [{}]}, "is not the description of a study"),
        ({"training": {"updats": 5}}, "there is no key 'updats'. Did you mean 'updates'?"),
    ],
)
def test_a_wrong_description_is_bad_input(commands, capsys, change, message):
    Path("study.yaml").write_text(yaml.safe_dump(DESCRIPTION | change))
    assert study(*TALES) == 2
    assert message in capsys.readouterr().err


def test_hours_take_the_most_important_cells_that_fit(commands, capsys, monkeypatch):
    from alibi_fairseq.experiments import hours

    costs = {"alibi": 1000.0, "sinusoidal": 3000.0, "rotary": 500.0}

    def cost_of(run):
        return hours.Cost(0.0, 0.0, costs[run.name.split("-")[1]] - 20, 100.0)

    monkeypatch.setattr(hours, "cost_of", cost_of)
    assert study(*TALES, "--hours", "1") == 0
    assert trained(commands) == [
        "tales-alibi-16",
        "tales-rotary-16",
        "tales-rotary-64",
        "tales-alibi-64",
    ]
    said = capsys.readouterr().out
    assert "4 of 5 runs fit: 50 min." in said
    assert "Left out, for another 50 min: tales-sinusoidal-16-seed1." in said
