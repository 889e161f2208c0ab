"""Reports: the page, its tables and figures, and contradicting results files."""

import re
from dataclasses import asdict

import pytest
from results_documents import document, evaluation_cell, figures_as_svg

from alibi_fairseq import cli
from alibi_fairseq.errors import UserInputError
from alibi_fairseq.paper import published as paper
from alibi_fairseq.paper.report_data import collect
from alibi_fairseq.results.results_file import save_results_file

TABLES = {f"table{n:02d}.md" for n in range(1, 16)}
FIGURES = {f"figure{n:02d}" for n in (1, 2, 4, 5, 6, 7, 8, 9, 11)}


def test_report_without_results_has_every_table_and_figure(tmp_path, capsys):
    assert cli.main(["report", "--out", str(tmp_path)]) == 0
    assert "0 measurements" in capsys.readouterr().out
    assert {path.name for path in (tmp_path / "tables").iterdir()} == TABLES
    expected = {f"{name}{suffix}" for name in FIGURES for suffix in (".png", ".svg", ".pdf")}
    assert {path.name for path in (tmp_path / "figures").iterdir()} == expected
    page = (tmp_path / "report.md").read_text()
    assert set(re.findall(r"\(figures/(\w+)\.png\)", page)) == FIGURES
    assert "18.40" in page
    assert "missing" in page


@pytest.fixture
def svg():
    with figures_as_svg():
        yield


def in_the_papers_setting(item="table05", shift=0.1, **changes):
    points = [p for p in paper.measurements(item) if p.position_method == "alibi"]
    keys = ("position_method", "train_length", "length", "stride", "subset")
    cells = [
        evaluation_cell(p.perplexity + shift, **{k: v for k, v in asdict(p).items() if k in keys})
        | {"model": "alibi_lm_wiki103", "updates": 286000}
        | changes
        for p in points
    ]
    return document(*cells, corpus="wikitext-103")


@pytest.mark.usefixtures("svg")
def test_report_compares_only_paper_corpora(tmp_path, capsys):
    save_results_file(in_the_papers_setting(), tmp_path / "in" / "paper.json")
    demo = [
        evaluation_cell(n, train_length=512, length=m) for n, m in ((12.34, 512), (56.78, 3072))
    ]
    save_results_file(document(*demo), tmp_path / "in" / "demo.json")
    assert cli.main(["report", str(tmp_path / "in"), "--out", str(tmp_path / "out")]) == 0
    assert "38 measurements, 36 comparable with the paper" in capsys.readouterr().out
    table = (tmp_path / "out" / "tables" / "table05.md").read_text()
    assert table.count("+0.10 =") == 36
    assert "12.34" not in table
    own = (tmp_path / "out" / "tables" / "demo-lengths.md").read_text()
    assert "12.34" in own
    assert "56.78" in own
    page = (tmp_path / "out" / "report.md").read_text()
    assert "demo is not a text of the paper" in page
    assert page.count("12.34") == 1
    assert (tmp_path / "out" / "figures" / "demo-lengths.png").is_file()
    figure = (tmp_path / "out" / "figures" / "figure04.svg").read_text()
    assert "<!-- ALiBi, L=512 (paper) -->" in figure
    assert "<!-- ALiBi, L=512 -->" in figure


def test_collect_merges_files_and_rejects_contradictions(tmp_path):
    for name, shift in (("a", 0.1), ("b", 0.1 + 1e-6)):
        save_results_file(in_the_papers_setting(shift=shift), tmp_path / f"{name}.json")
    results = collect([tmp_path])
    assert len(results.comparable("wikitext-103")) == 36
    save_results_file(in_the_papers_setting(shift=0.5), tmp_path / "b.json")
    with pytest.raises(
        UserInputError, match=r"b\.json and .*a\.json contain different perplexities"
    ):
        collect([tmp_path])


def test_collect_rejects_other_json_files_of_a_folder(tmp_path):
    save_results_file(in_the_papers_setting(), tmp_path / "results.json")
    (tmp_path / "settings.json").write_text('{"updates": 10}')
    with pytest.raises(
        UserInputError,
        match=r"settings\.json is not a results file\. Pass results files, such as the ",
    ):
        collect([tmp_path])


@pytest.mark.usefixtures("svg")
def test_report_of_other_corpus_omits_paper(tmp_path):
    save_results_file(document(evaluation_cell(12.34)), tmp_path / "mine.json")
    out = tmp_path / "out"
    command = ["report", str(tmp_path / "mine.json"), "--out", str(out)]
    assert cli.main(command) == 0
    page = (out / "report.md").read_text()
    assert "12.34" in page
    assert "Table 5" not in page
    assert "paper, one V100" not in page
    assert {path.name for path in (out / "tables").iterdir()} == {"demo-lengths.md"}
    assert cli.main([*command, "--paper"]) == 0
    assert {path.name for path in (out / "tables").iterdir()} >= TABLES
    (tmp_path / "empty").mkdir()
    for nothing in ("empty", "none.json"):
        assert cli.main(["report", str(tmp_path / nothing), "--out", str(out)]) == 2


@pytest.mark.usefixtures("svg")
def test_report_has_loss_by_position(tmp_path):
    positions = {"position_ends": [1, 2], "position_tokens": [600, 400]}
    cell = evaluation_cell(16.0, length=2, **positions, position_bits=[2600.0, 1400.0])
    save_results_file(document(cell), tmp_path / "mine.json")
    out = tmp_path / "out"
    assert cli.main(["report", str(tmp_path / "mine.json"), "--out", str(out), "--latex"]) == 0
    assert "1 & 600 & 4.333" in (out / "tables" / "demo-loss-by-position.tex").read_text()
    table = (out / "tables" / "demo-loss-by-position.md").read_text()
    assert "4.333" in table
    assert "3.500" in table
    page = (out / "report.md").read_text()
    assert "4.333" in page
    assert "(figures/demo-loss-by-position.png)" in page
    assert "<!-- ALiBi, L=64 -->" in (out / "figures" / "demo-loss-by-position.svg").read_text()


@pytest.mark.usefixtures("svg")
def test_report_titles_include_model_size(tmp_path):
    for name, layers in (("deep", 6), ("flat", 2)):
        facts = {"model": "alibi_lm_tiny", "layers": layers, "width": 64, "checkpoint": "best.pt"}
        cells = (evaluation_cell(10.0 + layers, length=n, **facts) for n in (64, 128))
        save_results_file(document(*cells), tmp_path / "in" / f"{name}.json")
    out = tmp_path / "out"
    command = ["report", str(tmp_path / "in"), "--out", str(out)]
    assert cli.main(command) == 0
    page = (out / "report.md").read_text()
    assert "ALiBi, L=64 (2 layers of width 64)" in page
    assert "(6 layers of width 64)" in page
    assert "## demo, alibi_lm_tiny\n" in page
    assert cli.main([*command, "--title", "Deep or flat"]) == 0
    assert (out / "report.md").read_text().startswith("# Deep or flat\n")
    (figure,) = (out / "figures").glob("deep-or-flat*.svg")
    assert "<!-- Deep or flat" in figure.read_text()


def two_texts(folder, measured, *options, **other):
    """Write a report of results on two texts of one name, and return its folder."""
    save_results_file(measured, folder / "in" / "one.json")
    cells = [cell | other for cell in measured["cells"]]
    provenance = measured["provenance"] | ({} if other else {"data_sha256": "c" * 64})
    save_results_file(
        measured | {"cells": cells, "provenance": provenance}, folder / "in" / "two.json"
    )
    command = ["report", str(folder / "in"), "--out", str(folder / "out")]
    assert cli.main([*command, *options]) == 0
    return folder / "out"


@pytest.mark.parametrize(
    ("other", "names"),
    [
        ({}, ("data aaaaaaaa", "data cccccccc")),
        ({"tokens": 77}, ("1000 tokens", "77 tokens")),
    ],
)
@pytest.mark.usefixtures("svg")
def test_report_separates_texts_of_one_name(tmp_path, other, names):
    cells = [evaluation_cell(12.0, length=n) for n in (64, 128)]
    out = two_texts(tmp_path, document(*cells), **other)
    (table,) = (out / "tables").glob("demo*lengths.md")
    text = table.read_text()
    for name in names:
        assert text.count(f"Perplexity on valid, non-overlapping, {name}:") == 1
    assert "seeds" not in text
    assert text.count("| 12.00 |") == 2
    (figure,) = (out / "figures").glob("demo*.svg")
    assert all(name in figure.read_text() for name in names)  # a panel for each


@pytest.mark.usefixtures("svg")
def test_paper_tables_separate_texts_of_one_name(tmp_path):
    out = two_texts(tmp_path, in_the_papers_setting())
    tables = [path.read_text() for path in (out / "tables").glob("table05*.md")]
    assert ["2 seeds" in text for text in tables] == [False, False]
    assert [text.count("+0.10 =") for text in tables] == [36, 36]
    assert len(list((out / "figures").glob("figure04*.svg"))) == 2
    assert not list((out / "tables").glob("table08*.md"))  # of a text without results
