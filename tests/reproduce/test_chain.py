"""The chain for real: preparation, training to two ages, evaluation and report, on generated text."""

from __future__ import annotations

import random

import pytest

from alibi_fairseq.launcher import Machine
from alibi_fairseq.reproduce import costs, estimate, plan, sources
from alibi_fairseq.reproduce.outcome import measured
from alibi_fairseq.reproduce.pipeline import Pipeline
from alibi_fairseq.reproduce.run import do_all
from alibi_fairseq.reproduce.scales import SMOKE
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
    run = next(
        run
        for run in plan.runs_for(("figure05",))
        if run.recipe.path == "cc100-roberta/sinusoidal-1024"
    )
    source = sources.Source("cc100-roberta", text, other=True)
    root, machine = tmp_path / "work", Machine(1, cpu=True)
    pipeline = Pipeline(root, [run], {"cc100-roberta": source}, SMOKE, machine)
    assert do_all(pipeline)
    results = load_document(pipeline.results(run, "valid"))
    assert results["corpus"] == "generated-smoke"
    found = {
        (cell["updates"], cell["length"], cell["position_method"]) for cell in results["cells"]
    }
    assert found == {
        (9, 1024, "sinusoidal"),
        *((10, length, "sinusoidal") for length in (1024, 2048)),
    }
    assert all(2 < cell["perplexity"] < 5000 for cell in results["cells"])
    assert measured(pipeline, run, 46_700, "valid") != measured(pipeline, run, 50_000, "valid")
    recipe = pipeline.training(run).recipe
    assert costs.folder_bytes(pipeline.training(run).folder) < 2 * costs.checkpoint_bytes(recipe, 1)
    assert costs.checkpoint_bytes(recipe, 1) < 2 * costs.folder_bytes(pipeline.training(run).folder)
    timing = estimate.measure(pipeline, run)
    assert timing.update > 0 and timing.long[0] == 2048
    by_hand = 10 * timing.update + 10 * len(pipeline.steps(run))  # and 4,608 evaluated tokens
    seconds = estimate.run_seconds(pipeline, run)
    assert seconds > 0 and abs(seconds - by_hand) < 60
    page = pipeline.page.read_text()
    assert "generated-smoke is not a text of the paper" in page
    assert not do_all(pipeline)
