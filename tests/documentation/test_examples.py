"""Examples as scripts and as notebooks, with their figures."""

from __future__ import annotations

import ast
import os
import runpy
import sys
from pathlib import Path

import pytest
from commands import ROOT, as_process
from results_documents import document, evaluation_record
from trained import binarize, make_sentencepiece, text_of, train

from alibi_fairseq import cli
from alibi_fairseq.files import sha256_file
from alibi_fairseq.results.file import load, save

sys.path.insert(0, str(ROOT / "examples"))
import longer_context

SCRIPTS = {p.stem: p for p in (ROOT / "examples").glob("*.py") if p.read_text().startswith("# %%")}
OUTPUT = {name: f"{name}.png" for name in SCRIPTS} | {"ten_lines": "exported/config.json"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    pytest.importorskip("nbformat", reason="./scripts/install.sh notebooks")
    import notebooks

    folder = tmp_path_factory.mktemp("notebooks")
    notebooks.main(folder)
    return folder


def test_notebooks_match_scripts(folder):
    import nbformat

    assert {path.stem for path in folder.glob("*.ipynb")} == set(SCRIPTS)
    readme = (ROOT / "examples" / "README.md").read_text()
    for name, script in SCRIPTS.items():
        assert f"[{name}.py]({name}.py)" in readme
        book = nbformat.read(folder / f"{name}.ipynb", as_version=4)
        nbformat.validate(book)
        change_folder, *cells = [cell.source for cell in book.cells if cell.cell_type == "code"]
        assert change_folder == f"import os\n\nos.chdir({str(ROOT)!r})"
        code = "\n".join(cells)
        assert ast.dump(ast.parse(code)) == ast.dump(ast.parse(script.read_text()))
        assert book.cells[0].cell_type == "markdown"
        assert book.cells[0].source.startswith("# ")


def test_notebooks_command_requires_folder():
    pytest.importorskip("nbformat", reason="./scripts/install.sh notebooks")
    done = as_process(ROOT / "examples" / "notebooks.py")
    assert done.returncode == 2
    assert "FOLDER" in done.stderr


def test_bias_example_writes_figure(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(ROOT / "examples" / "bias.py"))
    assert (tmp_path / "runs" / "examples" / "bias.png").stat().st_size > 10_000


@pytest.mark.parametrize("name", ["attention", "interpolation", "ten_lines"])
def test_missing_demonstration_ends_in_one_sentence(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match=r"missing\. Run ./scripts/demo\.sh, or set ALIBI_RUN"):
        runpy.run_path(str(ROOT / "examples" / f"{name}.py"))


@pytest.fixture
def start(tmp_path):
    """Return the place of the demonstration's checkpoint, with a file that is not read."""
    path = tmp_path / "run" / "alibi-64-seed1" / "checkpoint_last.pt"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"weights")
    return path


def write_records(results: Path, checkpoint: Path) -> None:
    """Write a results file with a record of the checkpoint and one of another checkpoint."""
    record = evaluation_record(2.0, checkpoint_sha256=sha256_file(checkpoint))
    other = evaluation_record(9.0, checkpoint_sha256="0" * 64)
    save(document(record, other), results)


def run_interpolation(evaluate, start, monkeypatch):
    monkeypatch.setattr(cli, "main", evaluate)
    monkeypatch.setenv("ALIBI_RUN", str(start.parent.parent))
    monkeypatch.chdir(start.parent)
    return runpy.run_path(str(ROOT / "examples" / "interpolation.py"))


def test_interpolation_draws_only_present_checkpoint(start, monkeypatch):
    def evaluate(command):
        write_records(Path(command[command.index("--out") + 1]), start)
        return 0

    variables = run_interpolation(evaluate, start, monkeypatch)
    assert variables["axes"].lines
    for line in variables["axes"].lines:
        assert line.get_ydata().tolist() == [2.0]


def test_interpolation_stops_if_evaluation_fails(start, monkeypatch):
    with pytest.raises(SystemExit) as stopped:
        run_interpolation(lambda command: 2, start, monkeypatch)
    assert stopped.value.code == 2


def test_longer_context_returns_records_of_checkpoint(start, tmp_path, monkeypatch):
    results = tmp_path / "results.json"
    write_records(results, start)
    monkeypatch.setattr(longer_context, "run_command", lambda *command: None)
    (record,) = longer_context.evaluate(start, tmp_path, "none", results)
    assert record.values.perplexity == 2.0


def test_longer_context_resumes_interrupted_training(start, tmp_path, monkeypatch):
    commands = []
    monkeypatch.setattr(longer_context, "run_command", lambda *command: commands.append(command))
    folder = tmp_path / "long"
    folder.mkdir()
    (folder / "checkpoint_last.pt").touch()
    checkpoint = longer_context.continue_training(start, tmp_path, folder, 256, 125)
    assert checkpoint == folder / "checkpoint_last.pt"
    assert [command[0] for command in commands] == ["train"]


def test_longer_context_rejects_other_settings(start, tmp_path):
    folder = tmp_path / "out"
    assert longer_context.record_settings(folder, start, 125)
    assert longer_context.record_settings(folder, start, 125)
    assert not longer_context.record_settings(folder, start, 500)
    start.write_bytes(b"other weights")
    assert not longer_context.record_settings(folder, start, 125)


@pytest.fixture(scope="module")
def trained_run(tmp_path_factory):
    """Train a run with the layout of the demonstration, and a sentencepiece model."""
    folder = tmp_path_factory.mktemp("run")
    encode = make_sentencepiece(folder / "pieces.model").encode
    lines = {split: text_of(split) for split in ("train", "valid")}
    data = binarize(folder, lines, lambda line: " ".join(encode(line, out_type=str)))
    train(data, folder / "alibi-64-seed1", "--arch alibi_lm_tiny --position-method alibi")
    return {"ALIBI_RUN": folder, "ALIBI_SENTENCEPIECE": folder / "pieces.model"}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_notebooks_run_on_trained_model(name, folder, trained_run, tmp_path, monkeypatch):
    nbclient = pytest.importorskip("nbclient", reason="./scripts/install.sh notebooks")
    import notebooks

    ten_lines = ROOT / "examples" / "ten_lines.py"
    environment = {**trained_run, "ALIBI_TEN_LINES": ten_lines, "HF_HOME": tmp_path}
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    for variable, value in {**environment, "PYTHONPATH": path, "MPLBACKEND": "agg"}.items():
        monkeypatch.setenv(variable, str(value))
    book = notebooks.notebook(SCRIPTS[name].read_text(), root=tmp_path)
    where = {"metadata": {"path": str(folder)}}
    nbclient.NotebookClient(book, timeout=300, resources=where).execute()
    assert (tmp_path / "runs" / "examples" / OUTPUT[name]).stat().st_size > 500


@pytest.mark.slow
def test_longer_context_example(trained_run, tmp_path):
    script = ROOT / "examples" / "longer_context.py"
    run = trained_run["ALIBI_RUN"]
    arguments = ["--out", tmp_path / "out", "--updates", "10"]
    done = as_process(script, run, *arguments, cwd=tmp_path, PYTHONPATH=ROOT)
    assert done.returncode == 0, done.stderr[-2000:]
    assert len(load(tmp_path / "out" / "results.json").results) == 30
    table = (tmp_path / "out" / "table.md").read_text()
    assert table.count("\n") == 8
    assert "continued at 256" in table
