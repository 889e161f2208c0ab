"""Table 1 and Figures 2, 5, 7, and 8: the paper's speeds and times next to made-up ones of ours."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from commands import ROOT
from results_documents import PREPARED, PROVENANCE, cells_of

from alibi_fairseq.paper.collected_results import CollectedResults, collect
from alibi_fairseq.paper.figures import draw
from alibi_fairseq.paper.items import items
from alibi_fairseq.paper.speeds import Speed, TimedModel, trained_speeds
from alibi_fairseq.paper.tables import paper_tables
from alibi_fairseq.positions.spec import MethodSpec
from alibi_fairseq.reporting import plots
from alibi_fairseq.reporting.markdown import to_markdown
from alibi_fairseq.results.case import Case
from alibi_fairseq.results.file import Results
from alibi_fairseq.results.provenance import Provenance
from alibi_fairseq.results.result import Result
from alibi_fairseq.results.series import Facts, Reading, Series
from alibi_fairseq.results.training_settings import method_json
from alibi_fairseq.results.values import Cost, TextValues

WIKITEXT = ("wikitext-103", "alibi_lm_wiki103", 286_000)
LARGE = ("cc100-roberta", "alibi_lm_1b3", 50_000)
BENCHMARK = ROOT / "results/benchmarks/methods-cpu.json"


def results_of_training(
    corpus: tuple[str, str, int], method: str, train_length: int, length: int, **settings
) -> Iterator[Result]:
    """Yield validations at half and all of the updates, and evaluations of both checkpoints.

    There are two seeds. The perplexity is 20 at half of the updates, and then 16; the second seed
    is worse by 2, and takes 20 hours more.
    """
    name, architecture, updates = corpus
    values = {"method": method_json(MethodSpec.plain(method))}
    values |= {"task.tokens_per_sample": train_length, **settings}
    series = Series(values, facts=Facts(architecture=architecture))
    for seed in (0, 1):
        for fraction, perplexity in ((0.5, 20.0), (1.0, 16.0)):
            at = int(fraction * updates)
            bits = TextValues(math.log2(perplexity + 2 * seed))
            cost = Cost(
                gpu_seconds=3600 * (1000 * fraction + 20 * seed),
                tokens_per_second_per_process=10_000.0 + 1000 * seed,
                peak_memory_mb=8000.0,
                tokens_per_second=50_000.0,
            )
            shared = {"series": series, "reading": Reading(at), "seed": seed, "updates": at}
            during = Case("validation", "a" * 64, "valid", train_length, train_length)
            yield Result(**shared, case=during, values=bits, cost=cost)
            after = Case("text", "b" * 64, "valid", length, length, corpus=name)
            checkpoint = f"{method}-{train_length}-{seed}-{at}"
            shared |= {"checkpoint": checkpoint, "text": PREPARED}
            yield Result(**shared, case=after, values=bits, cost=cost)


#: Source of the speeds of trainings on the machine of ``PROVENANCE``.
TRAININGS = "our trainings on a processor, 2 threads, fp32, per process"


def collected(*results: Result) -> CollectedResults:
    """Return the contents of a report on results of one machine."""
    evaluations = [result for result in results if result.case.kind == "text"]
    file = Results(results, Provenance(**PROVENANCE))
    return CollectedResults([(Path("made-up.json"), file)], evaluations)


def on_gpu(name: str, precision: str, results: Iterable[Result]) -> Results:
    """Return a results file of a machine with a GPU."""
    hardware = {**PROVENANCE["hardware"], "gpu": name}
    changes = {"hardware": hardware, "precision": precision}
    return Results(list(results), Provenance(**PROVENANCE | changes))


def on_two_gpus(train_length: int, length: int, corpus=WIKITEXT) -> CollectedResults:
    """Return ALiBi with both seeds of sinusoidal embeddings, the second of which has another GPU.

    ALiBi and the first seed were evaluated in fp32 on the GPU that trained them. The second seed
    was trained on eight other GPUs and evaluated on one of the first kind.
    """
    alibi = list(results_of_training(corpus, "alibi", train_length, length))
    sinusoidal = list(results_of_training(corpus, "sinusoidal", train_length, length))
    first = [*alibi, *(result for result in sinusoidal if result.seed == 0)]
    second = [result for result in sinusoidal if result.seed == 1]
    evaluations = [result for result in (*first, *second) if result.case.kind == "text"]
    files = {
        "first.json": on_gpu("V100", "fp16", of_kind(first, "validation")),
        "second.json": on_gpu("8 x H200", "fp16", of_kind(second, "validation")),
        "evaluation.json": on_gpu("V100", "fp32", evaluations),
    }
    return CollectedResults([(Path(name), file) for name, file in files.items()], evaluations)


def of_kind(results: Iterable[Result], kind: str) -> list[Result]:
    """Return the results of a kind of cases."""
    return [result for result in results if result.case.kind == kind]


def drawn(figure: str, data: CollectedResults, monkeypatch) -> dict[str, dict[str, plots.PlotLine]]:
    """Return the lines of a figure by label, for each panel."""
    panels: list[plots.Panel] = []
    monkeypatch.setattr(plots, "draw", lambda title, drawn, *paths, **_: panels.extend(drawn))
    draw(items()[figure], data)
    return {f"{panel.title}, {panel.y}": {x.label: x for x in panel.lines} for panel in panels}


def table_1(data: CollectedResults) -> str:
    """Format Table 1 of the report."""
    return to_markdown(paper_tables(items()["table01"], data))


def test_table_1_has_the_paper_and_a_benchmark():
    text = table_1(collect([BENCHMARK]))
    rows = cells_of(text)
    assert ["ALiBi", "512", "28.3k", "0.99", "85.8k", "1.05", "15.3", "+0.0"] in rows
    assert ["Sinusoidal", "512", "1.2k", "1.00", "5.9k", "1.00", "1.7", "+0.0"] in rows
    assert "4 layers, d=512 (benchmarks/methods-cpu.json):" in text
    assert "missing" not in text


def test_table_1_without_results_is_missing_ours():
    rows = cells_of(table_1(CollectedResults()))
    missing = ["ALiBi", "512", "missing", "–", "missing", "–", "missing", "–"]
    assert missing in rows


def test_speeds_of_trainings_are_means_over_seeds():
    data = collected(*results_of_training(WIKITEXT, "alibi", 512, 512))
    speed = Speed(10_500.0, 50_000.0, 8.0)
    assert trained_speeds(data, "wikitext-103") == {TRAININGS: {TimedModel("alibi", 512): speed}}


def test_speeds_of_two_machines_are_apart():
    text = table_1(on_two_gpus(512, 512))
    _, first, second = text.split("Our trainings on ")
    assert first.startswith("V100, fp16, per process")
    assert cells_of(first)[1:] == [
        ["ALiBi", "512", "10.5k", "1.05", "50.0k", "1.00", "8.0", "+0.0"],
        ["Sinusoidal", "512", "10.0k", "1.00", "50.0k", "1.00", "8.0", "+0.0"],
    ]
    assert second.startswith("8 x H200, fp16, per process")
    assert cells_of(second)[1:] == [
        ["Sinusoidal", "512", "11.0k", "1.00", "missing", "–", "8.0", "+0.0"]
    ]


def test_figures_have_a_panel_for_each_machine(monkeypatch):
    panels = drawn("figure08", on_two_gpus(3072, 3072), monkeypatch)
    ours = {name: lines for name, lines in panels.items() if name.startswith("our trainings")}
    first, second = ours.values()
    assert first["Sinusoidal"].x == [10.0]
    assert second["Sinusoidal"].x == [11.0]
    assert second["ALiBi"].x == []


def test_training_times_of_two_machines_are_apart(monkeypatch):
    panels = drawn("figure05", on_two_gpus(2048, 2048, LARGE), monkeypatch)
    lines = panels["evaluated at 2048, Perplexity"]
    assert lines["Sinusoidal, L=2048, V100, fp16"].x == pytest.approx([500.0, 1000.0])
    assert lines["Sinusoidal, L=2048, 8 x H200, fp16"].x == pytest.approx([520.0, 1020.0])


def test_models_that_differ_keep_their_speeds_and_perplexities(monkeypatch):
    """Two learning rates are two rows of Table 1, and two points of Figure 8."""
    results = list(results_of_training(WIKITEXT, "alibi", 512, 3072, **{"optimization.lr": 1.0}))
    for result in results_of_training(WIKITEXT, "alibi", 512, 3072, **{"optimization.lr": 0.5}):
        slower = replace(result.cost, tokens_per_second_per_process=1000.0)
        checkpoint = result.checkpoint and f"other-{result.checkpoint}"
        worse = TextValues(math.log2(32.0))
        results.append(replace(result, cost=slower, checkpoint=checkpoint, values=worse))
    data = collected(*results)
    by_model = trained_speeds(data, "wikitext-103")[TRAININGS]
    speeds = {model.name: speed.train for model, speed in by_model.items()}
    assert speeds == {"ALiBi (lr 1)": 10_500.0, "ALiBi (lr 0.5)": 1000.0}
    panels = drawn("figure08", data, monkeypatch)
    (ours,) = [lines for name, lines in panels.items() if "trainings" in name]
    assert {label: line.y for label, line in ours.items()} == {
        "ALiBi (lr 1)": [pytest.approx(17.0)],
        "ALiBi (lr 0.5)": [pytest.approx(32.0)],
    }


def test_speeds_of_trainings_unlike_the_paper_are_left_out():
    options = {"model.decoder_layers": 3}
    data = collected(*results_of_training(WIKITEXT, "alibi", 512, 512, **options))
    assert trained_speeds(data, "wikitext-103") == {}


def test_figure_2_has_three_panels_for_each_source(monkeypatch):
    panels = drawn("figure02", collect([BENCHMARK]), monkeypatch)
    assert len(panels) == 6
    memory = panels["the paper, one V100, Memory of training (GB)"]
    assert (memory["T5 bias"].x, memory["T5 bias"].y) == ([512, 1024, 3072], [16.9, 20.9, 15.9])
    (ours,) = [lines for name, lines in panels.items() if "benchmarks" in name and "Evalu" in name]
    assert ours["Sinusoidal"].y[0] == pytest.approx(5.8861)


def test_curves_of_two_texts_are_apart(monkeypatch):
    """A folder of other data may have the corpus's name, and a split of the same name."""
    results = list(results_of_training(LARGE, "alibi", 1024, 2048))
    for result in results_of_training(LARGE, "alibi", 1024, 2048):
        if result.case.kind == "text":
            other = replace(result.case, text="c" * 64)
            results.append(replace(result, case=other, values=TextValues(9.0)))
    lines: list[plots.Panel] = []
    monkeypatch.setattr(plots, "draw", lambda title, drawn, *paths, **_: lines.extend(drawn))
    draw(items()["figure05"], collected(*results))
    (panel,) = [panel for panel in lines if panel.title == "evaluated at 2048"]
    curves = [line.y for line in panel.lines if line.label == "ALiBi, L=1024"]
    assert curves == [[pytest.approx(21.0), pytest.approx(17.0)], [512.0, 512.0]]


@pytest.mark.parametrize(("train_length", "length"), [(1024, 2048), (2048, 2048)])
def test_figure_5_has_curves_by_hours(train_length, length, monkeypatch):
    method = "alibi" if train_length == 1024 else "sinusoidal"
    data = collected(*results_of_training(LARGE, method, train_length, length))
    panels = drawn("figure05", data, monkeypatch)
    lines = panels["evaluated at 2048, Perplexity"]
    name = "ALiBi" if method == "alibi" else "Sinusoidal"
    curve = lines[f"{name}, L={train_length}"]
    assert curve.x == pytest.approx([510.0, 1010.0])
    assert curve.y == pytest.approx([21.0, 17.0])
    end = lines["ALiBi, L=1024 (paper, end: 8.92)"]
    assert (end.x, end.y) == ([5974], [8.92])


def test_figure_5_separates_ways_of_training(monkeypatch):
    first = results_of_training(LARGE, "alibi", 1024, 2048)
    second = list(results_of_training(LARGE, "alibi", 1024, 2048, **{"model.dropout": 0.3}))
    del second[0]  # a validation of the first seed
    panels: list[plots.Panel] = []
    monkeypatch.setattr(plots, "draw", lambda title, drawn, *paths, **_: panels.extend(drawn))
    draw(items()["figure05"], collected(*first, *second))
    curves = [line for line in panels[1].lines if line.label == "ALiBi, L=1024"]
    assert [curve.x[0] for curve in curves] == pytest.approx([510, 520])


def test_figure_7_has_training_speeds(monkeypatch):
    data = collected(*results_of_training(WIKITEXT, "alibi", 512, 512))
    panels = drawn("figure07", data, monkeypatch)
    printed = panels["the paper, one V100, Training (thousand words per second)"]
    assert printed["ALiBi"].x == [64, 128, 256, 512, 1024, 1536, 2048, 3072]
    ours = panels[f"{TRAININGS}, Training (thousand tokens per second)"]
    assert (ours["ALiBi"].x, ours["ALiBi"].y) == ([512], [10.5])


def test_figure_8_has_a_point_for_each_training_length(monkeypatch):
    data = collected(*results_of_training(WIKITEXT, "alibi", 512, 3072))
    panels = drawn("figure08", data, monkeypatch)
    printed = panels["the paper, one V100, Perplexity"]["ALiBi"]
    index = [length for _, length in printed.notes].index("L=512")
    assert printed.notes[index][0] == index
    assert (printed.x[index], printed.y[index]) == (28.304, 18.40)
    ours = panels[f"{TRAININGS}, Perplexity"]["ALiBi"]
    assert (ours.x, ours.y) == ([10.5], [pytest.approx(17.0)])
