"""The chain for real: preparation, training to two ages, evaluation and report, on generated text."""

from __future__ import annotations

import random

import pytest

from alibi_fairseq.experiments.hours import cost_of
from alibi_fairseq.experiments.paper_data import Data
from alibi_fairseq.experiments.paper_outcome import measured
from alibi_fairseq.experiments.paper_tables import PaperTables, checkpoint_bytes
from alibi_fairseq.experiments.runner import carry_out
from alibi_fairseq.experiments.torchrun import Machine
from alibi_fairseq.paper import tables
from alibi_fairseq.paper.recipe import SMOKE
from alibi_fairseq.results.schema import load_document


def write_text(path) -> None:
    draw = random.Random(1)
    words = ["".join(draw.choices("etaoinshrdlu", k=draw.randint(2, 9))) for _ in range(2000)]
    with open(path, "w") as out:
        for _ in range(1500):
            out.write(" ".join(draw.choices(words, k=draw.randint(5, 25))) + ".\n\n")


@pytest.mark.slow
def test_one_run_from_text_to_report(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    text = tmp_path / "generated.txt"
    write_text(text)
    training = next(
        each
        for each in tables.trainings_for(("figure05",))
        if each.recipe.path == "cc100-roberta/sinusoidal-1024"
    )
    root, machine = tmp_path / "work", Machine(1, cpu=True)
    data = {"cc100-roberta": Data(root / "data", "cc100-roberta", text, True, SMOKE)}
    experiment = PaperTables(root, (), [training], data, SMOKE, machine)
    assert carry_out(experiment) == 0
    results = load_document(experiment.results(training, "valid"))
    assert results["corpus"] == "generated-smoke"
    found = {
        (cell["updates"], cell["length"], cell["position_method"]) for cell in results["cells"]
    }
    assert found == {
        (9, 1024, "sinusoidal"),
        *((10, length, "sinusoidal") for length in (1024, 2048)),
    }
    assert all(2 < cell["perplexity"] < 5000 for cell in results["cells"])
    earlier, *_, last = (list(measured(experiment, each)) for each in training.evaluations)
    assert earlier and last and earlier != last
    (run,) = experiment.runs
    stated = checkpoint_bytes(SMOKE, training.recipe, 1)
    assert stated / 2 < sum(path.stat().st_size for path in run.folder.rglob("*")) < 2 * stated
    cost = cost_of(run)
    assert 0 < cost.update < 5 and 0 < cost.evaluation < 60
    page = experiment.page.read_text()
    assert "generated-smoke is not a text of the paper" in page
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*.pt")}
    assert carry_out(experiment) == 0
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*.pt")} == before
