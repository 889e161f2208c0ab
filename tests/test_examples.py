"""The examples run, as notebooks, and leave their figures."""

from __future__ import annotations

import ast
import json
import sys

import pytest
import sentencepiece
from commands import ROOT, as_process, in_process
from trained import text_of, train

sys.path.insert(0, str(ROOT / "examples"))
import notebooks

SCRIPTS = {p.stem: p for p in (ROOT / "examples").glob("*.py") if p.read_text().startswith("# %%")}
OUTPUT = {name: f"{name}.png" for name in SCRIPTS} | {"ten_lines": "exported/config.json"}


def code_of(path) -> str:
    """The code of a notebook, cell after cell."""
    cells = json.loads(path.read_text())["cells"]
    return "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "code")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("notebooks")
    notebooks.main(folder)
    return folder


def test_notebooks_hold_the_scripts(folder):
    assert {path.stem for path in folder.glob("*.ipynb")} == set(SCRIPTS)
    readme = (ROOT / "examples" / "README.md").read_text()
    for name, script in SCRIPTS.items():
        assert f"[{name}.py]({name}.py)" in readme
        code = ast.dump(ast.parse(code_of(folder / f"{name}.ipynb")))
        assert code == ast.dump(ast.parse(script.read_text()))
        first = json.loads((folder / f"{name}.ipynb").read_text())["cells"][0]
        assert first["cell_type"] == "markdown" and first["source"][0].startswith("# ")


def run(notebook, where, **environment):
    done = as_process("-c", code_of(notebook), cwd=where, MPLBACKEND="agg", **environment)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_the_figure_of_biases(folder, tmp_path):
    run(folder / "bias.ipynb", tmp_path, PYTHONPATH=ROOT)
    assert (tmp_path / "runs" / "examples" / "bias.png").stat().st_size > 10_000


@pytest.fixture(scope="module")
def trained_run(tmp_path_factory):
    """A run laid out as that of the demonstration, and its sentencepiece model."""
    folder = tmp_path_factory.mktemp("run")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text_of("train")),
        model_prefix=str(folder / "pieces"),
        model_type="bpe",
        vocab_size=300,
        minloglevel=2,
    )
    model = sentencepiece.SentencePieceProcessor(model_file=str(folder / "pieces.model"))
    prefixes = []
    for split in ("train", "valid"):
        lines = [" ".join(model.encode(line, out_type=str)) + "\n" for line in text_of(split)]
        (folder / split).write_text("".join(lines))
        prefixes += [f"--{split}pref", folder / split]
    data = folder / "data-bin"
    in_process("preprocess", "--only-source", *prefixes, "--destdir", data, "--workers", 1)
    train(data, folder / "alibi-64-seed1", "--arch alibi_lm_tiny --position-method alibi")
    return {"ALIBI_RUN": folder, "ALIBI_SENTENCEPIECE": folder / "pieces.model"}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(SCRIPTS) - {"bias"}))
def test_examples_on_a_trained_model(name, folder, trained_run, tmp_path):
    environment = {**trained_run, "PYTHONPATH": ROOT, "HF_HOME": tmp_path}
    ten_lines = ROOT / "examples" / "ten_lines.py"
    run(folder / f"{name}.ipynb", tmp_path, ALIBI_TEN_LINES=ten_lines, **environment)
    assert (tmp_path / "runs" / "examples" / OUTPUT[name]).stat().st_size > 500


@pytest.mark.slow
def test_the_example_that_trains(trained_run, tmp_path):
    script = ROOT / "examples" / "longer_context.py"
    data = trained_run["ALIBI_RUN"] / "data-bin"
    done = as_process(
        script, data, "--out", tmp_path / "out", "--updates", "12", cwd=tmp_path, PYTHONPATH=ROOT
    )
    assert done.returncode == 0, done.stderr[-2000:]
    document = json.loads((tmp_path / "out" / "results.json").read_text())
    assert len(document["cells"]) == 30
    table = (tmp_path / "out" / "table.md").read_text()
    assert table.count("\n") == 8 and "continued at 256" in table
