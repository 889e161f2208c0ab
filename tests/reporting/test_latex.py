"""Tables of a report in LaTeX, and their columns."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from operator import itemgetter

import pytest
from figure_texts import figure_texts
from results_documents import (
    cells_of,
    document,
    evaluation_record,
    figures_as_svg,
    results_of,
)

from alibi_fairseq import cli
from alibi_fairseq.paper.collected_results import collect
from alibi_fairseq.reporting import latex
from alibi_fairseq.reporting.differences import difference_tables
from alibi_fairseq.reporting.perplexity_by_length import length_tables
from alibi_fairseq.reporting.rows import build_rows
from alibi_fairseq.reporting.table import Column, Table
from alibi_fairseq.reporting.texts import group_by_text
from alibi_fairseq.results.file import save


def table_of(headers, rows, **texts) -> Table:
    """Return a table of texts."""
    columns = [Column(header, itemgetter(index)) for index, header in enumerate(headers)]
    return Table(columns, rows, **texts)


def test_tabular_matches_pandas():
    pandas = pytest.importorskip("pandas")
    headers = ["model_name", "50% & more", "#2"]
    rows = [["ALiBi, L=64", "$1", "{2}"], ["a_b", "18.40", "missing"]]
    frame = pandas.DataFrame(rows, columns=headers)
    expected = frame.to_latex(index=False, escape=True, column_format="lrr")
    assert latex.tabular(table_of(headers, rows)) == expected


def test_special_characters_are_escaped():
    escaped = latex.literal("\\input{x} ~ ^ <b> | – 1 ± 2 † --lr")
    assert escaped == (
        r"\textbackslash{}input\{x\} \textasciitilde{} \textasciicircum{} "
        r"\textless{}b\textgreater{} \textbar{} -- 1 $\pm$ 2 $\dagger$ -{}-lr"
    )
    assert latex.literal("% a comment\nnext") == r"\% a comment next"
    assert latex.literal("[1] *") == "{[}1{]} {*}"


def test_ranges_of_numbers_are_no_subtractions():
    text = latex.tabular(table_of(["position", "change"], [["5–6", "-0.4 … +1.2"]]))
    assert "5--6 & $-$0.4 … +1.2 \\\\\n" in text


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="LaTeX is not installed")
def test_latex_compiles(tmp_path):
    rows = [["ALiBi, L=64", "--lr"], ["[3] 50%", ""], ["*", "(chance)"]]
    rows.append([" ".join(latex.ESCAPES), "é"])
    table = table_of(["model_name", "#1"], rows, caption="a_b", notes=["A note."])
    (tmp_path / "tables.tex").write_text(latex.document_part([table]), encoding="utf-8")
    (tmp_path / "page.tex").write_text(
        "\\documentclass{article}\n\\usepackage{booktabs}\n"
        "\\begin{document}\n\\input{tables}\n\\end{document}\n"
    )
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "page.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "Missing character" not in (tmp_path / "page.log").read_text(errors="replace")


@pytest.fixture
def report(tmp_path):
    """Return a function that reports a model at three lengths and returns the exit code."""
    records = []
    for length, value in ((64, 60.0), (256, 59.0), (512, 58.5)):
        facts = {"parameters": 700_000, "updates": 1000, "method": "50%_off"}
        records.append(evaluation_record(value, length=length, **facts))
    save(document(*records), tmp_path / "mine.json")

    def run(*options: str) -> int:
        with figures_as_svg():
            return cli.main(
                ["report", str(tmp_path / "mine.json"), "--out", str(tmp_path / "out"), *options]
            )

    return run


def test_report_writes_latex_tables(report, tmp_path):
    assert report() == 0
    assert not list(tmp_path.glob("out/tables/*.tex"))
    assert report("--latex") == 0
    text = (tmp_path / "out/tables/demo-lengths.tex").read_text()
    assert r"\begin{tabular}{lrrrr}" in text
    assert (
        r"\caption{Perplexity on valid, non-overlapping. "
        r"All models: demo; 1,000 updates; fp32; learning rate 0.25; a single seed.}"
        "\n"
        r"\label{tab:demo-perplexity-on-valid-non-overlapping}"
    ) in text
    figure = (tmp_path / "out/figures/demo-lengths.tex").read_text()
    assert r"\includegraphics[width=\linewidth]{demo-lengths.pdf}" in figure
    assert (
        r"\caption{Perplexity by evaluation length. demo, validation split, "
        "non-overlapping windows; trained at L = 64, 1,000 updates; a single seed.}"
    ) in figure
    assert re.search(r"50\\%\\_off, L=64 & 60\.00 & 59\.00 & 58\.50 & 700,000 \\\\\n", text)


def test_report_shows_columns_in_order(report, tmp_path):
    assert report("--columns", "512,parameters,updates,seeds,64", "--latex") == 0
    (header, row) = cells_of((tmp_path / "out/tables/demo-lengths.md").read_text())
    assert header[1:] == ["512", "parameters", "updates", "seeds", "64"]
    assert row[1:] == ["58.50", "700,000", "1,000", "1", "60.00"]
    text = (tmp_path / "out/tables/demo-lengths.tex").read_text()
    assert "& 58.50 & 700,000 & 1,000 & 1 & 60.00" in text


def test_unknown_column_is_rejected(report, tmp_path, capsys):
    assert report("--columns", "64,parameter") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "no column 'parameter'. Did you mean 'parameters'?" in line
    assert "Choose from 64, 256, 512, parameters, learning rate, updates, seeds." in line
    assert not (tmp_path / "out").exists()


def test_label_of_a_file_replaces_method_and_length(report, tmp_path):
    assert report("--label", f"{tmp_path / 'mine.json'}=Half off") == 0
    (_, row) = cells_of((tmp_path / "out/tables/demo-lengths.md").read_text())
    assert row[0] == "Half off"
    texts = figure_texts(tmp_path / "out/figures/demo-lengths.svg")
    assert "Half off" in " ".join(texts)


@pytest.mark.parametrize(
    ("models", "names"),
    [
        ([("alibi", 64), ("sinusoidal", 64)], ["Mine, ALiBi", "Mine, Sinusoidal"]),
        ([("alibi", 64), ("alibi", 128)], ["Mine, L=64", "Mine, L=128"]),
        (
            [("alibi", 64), ("sinusoidal", 128)],
            ["Mine, ALiBi, L=64", "Mine, Sinusoidal, L=128"],
        ),
    ],
)
def test_label_of_several_models_shows_what_differs(tmp_path, models, names):
    records = []
    for method, train_length in models:
        records.append(evaluation_record(9.0, method=method, train_length=train_length))
    path = tmp_path / "mine.json"
    save(document(*records, replace(records[0], subset="test")), path)
    on_valid, on_test = group_by_text(collect([path], {path: "Mine"}).results).values()
    assert {row.name for row in build_rows(on_valid)} == set(names)
    assert [row.name for row in build_rows(on_test)] == names[:1]


@pytest.mark.parametrize("label", ["missing.json=A", "mine.json", "mine.json="])
def test_label_needs_a_results_file_and_a_text(report, tmp_path, monkeypatch, capsys, label):
    monkeypatch.chdir(tmp_path)
    assert report("--label", label) == 2
    assert "must be FILE=TEXT" in capsys.readouterr().err


def test_label_of_a_file_that_is_not_reported_is_rejected(report, tmp_path, capsys):
    other = tmp_path / "other.json"
    other.write_text("{}")
    assert report("--label", f"{other}=A") == 2
    assert "is not among the results" in capsys.readouterr().err


def test_conditions_have_a_table_of_their_own():
    records = []
    for method, rate in (("alibi", "0.001"), ("rotary", "0.002")):
        records.append(evaluation_record(10.0, method=method, options={"lr": rate}))
    text = latex.document_part(length_tables(results_of(*records)))
    conditions, table = re.findall(r"\\begin\{table\}.*?\\end\{table\}", text, re.DOTALL)
    assert r"\caption{Models differ in these conditions.}" in conditions
    assert r"ALiBi, L=64 & 0.001 \\" in conditions
    assert "Perplexity on valid" in table


def seeds_of(method, perplexities, **facts):
    """Return records of seeds at two lengths."""
    records = []
    for seed, perplexity in enumerate(perplexities):
        for length, factor in ((64, 1), (128, 1.5)):
            values = {"seed": seed, "checkpoint": f"{method}-{seed}.pt", "length": length}
            records.append(evaluation_record(perplexity * factor, method=method, **values, **facts))
    return records


def tables_for_paper():
    """Return the tables of two methods of three seeds for a paper, as LaTeX."""
    alibi = seeds_of("alibi", (10.0, 10.2, 10.4), parameters=1_107_072, options={"lr": "0.01"})
    t5 = seeds_of("t5", (9.0, 9.4, 9.2), parameters=1_107_328, options={"lr": "0.02"})
    results = results_of(*alibi, *t5)
    tables = [*length_tables(results, for_paper=True), *difference_tables(results)]
    return latex.document_part(tables, name="demo")


def test_table_for_a_paper():
    text = tables_for_paper()
    assert "64 & 128 & parameters & learning rate" in text
    assert r"ALiBi, L=64 & 10.20 $\pm$ 0.20 & 15.30 $\pm$ 0.30 & 1,107,072 & 0.01 \\" in text
    t5 = r"\textbf{9.20 $\pm$ 0.20} & \textbf{13.80 $\pm$ 0.30} & 1,107,328 & 0.02 \\"
    assert f"T5 bias, L=64 & {t5}" in text
    assert text.count("3 seeds") == 1  # in the caption
    assert "Models differ" not in text  # in more than the learning rate
    assert re.search(r"T5 bias, L=64 vs\. ALiBi, L=64 & \$-\$9\.8\\% \(\$-\$\d", text)


def test_latex_of_tables_is_well_formed():
    """Check what LaTeX would reject: environments, cells per row, labels, and braces."""
    text = tables_for_paper()
    environments = []
    for kind, name in re.findall(r"\\(begin|end)\{(\w+)\}", text):
        if kind == "begin":
            environments.append(name)
        else:
            assert environments.pop() == name
    assert environments == []
    labels = re.findall(r"\\label\{(.*?)\}", text)
    assert len(labels) == len(set(labels)) == text.count(r"\begin{table}") == 2
    tabulars = re.findall(r"\\begin\{tabular\}\{(\w+)\}(.*?)\\end\{tabular\}", text, re.DOTALL)
    for alignment, body in tabulars:
        rows = [line for line in body.splitlines() if line.endswith(r"\\")]
        assert {len(row.split(" & ")) for row in rows} == {len(alignment)}
    unescaped = re.sub(r"\\.", "", text)
    assert unescaped.count("{") == unescaped.count("}")
    assert unescaped.count("$") % 2 == 0


def test_equal_tables_have_different_labels():
    table = table_of(["a"], [["b"]], caption="Perplexity")
    text = latex.document_part([table, table])
    assert re.findall(r"\\label\{(.*?)\}", text) == ["tab:perplexity", "tab:2-perplexity"]
