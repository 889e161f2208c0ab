"""Every committed page and results file, written again from the committed JSON.

Figures are not compared, because their bytes depend on the version of matplotlib.
"""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from commands import ROOT
from results_documents import cells_of

from alibi_fairseq import cli
from alibi_fairseq.cli.evaluate import evaluation_table
from alibi_fairseq.cli.recall import recall_table
from alibi_fairseq.experiment.report import build_tables
from alibi_fairseq.reporting import markdown
from alibi_fairseq.reporting.loss_by_position import position_tables
from alibi_fairseq.reporting.perplexity_by_length import length_table
from alibi_fairseq.results.benchmark import (
    BENCHMARK_SCHEMA,
    parse_benchmarks,
    save_benchmarks,
)
from alibi_fairseq.results.file import load, save
from benchmarks import table
from studies.__main__ import main

RESULTS = ROOT / "results"


def test_page_of_small_models(tmp_path):
    shutil.copytree(RESULTS / "small_models", tmp_path / "small_models")
    for name in ("README.md", "disclosure.md", "secondary.md"):
        (tmp_path / "small_models" / name).unlink()
    assert main(["--results", str(tmp_path / "small_models")]) == 0
    for name in ("README.md", "disclosure.md", "secondary.md"):
        assert_same(tmp_path, f"small_models/{name}", RESULTS)


def test_page_of_gpu_study(tmp_path):
    shutil.copytree(RESULTS / "gpu", tmp_path / "results/gpu")
    for name in ("README.md", "disclosure.md"):
        (tmp_path / "results/gpu/hour" / name).unlink()
    config = ROOT / "studies/gpu/hour.yaml"
    assert main([str(config), "--results", str(tmp_path / "results/gpu")]) == 0
    for name in ("README.md", "disclosure.md"):
        assert_same(tmp_path, f"results/gpu/hour/{name}")


def test_page_of_title_test(tmp_path):
    shutil.copytree(RESULTS / "title", tmp_path / "results/title")
    (tmp_path / "results/title/README.md").unlink()
    config = ROOT / "studies/title/3M.yaml"
    assert main([str(config), "--results", str(tmp_path / "results/title")]) == 0
    assert_same(tmp_path, "results/title/README.md")


def test_blocks_of_readme_and_page_of_the_paper(tmp_path):
    shutil.copytree(RESULTS / "small_models", tmp_path / "results/small_models")
    readme = tmp_path / "README.md"
    shutil.copy(ROOT / "README.md", readme)
    results = str(tmp_path / "results/small_models")
    assert main(["--results", results, "--readme", str(readme)]) == 0
    assert_same(tmp_path, "README.md")
    assert_same(tmp_path, "results/paper/title-claim.md")


def test_page_of_benchmarks(tmp_path, monkeypatch):
    committed = table.PAGE.read_bytes()
    monkeypatch.setattr(table, "PAGE", tmp_path / "README.md")
    table.main()
    assert (tmp_path / "README.md").read_bytes() == committed


def test_record_keeps_its_rules_and_page_is_current(capsys):
    assert cli.main(["record", "check", "--record", str(RESULTS / "record")]) == 0
    entries = len([*(RESULTS / "record" / "wikipedia-3M-128").glob("*/entry.json")])
    assert f"wikipedia-3M-128: {entries} entries" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["demo", "modern-block", "overwrite", "paper-block", "recall"])
def test_tables_of_comparison(name):
    """All tables but those of trials and of costs, which are not in the results file."""
    folder = RESULTS / "examples" / name
    tables = build_tables(load(folder / "results.json").results)
    page = (folder / "table.md").read_text(encoding="utf-8")
    title, summary, *sections = page.rstrip("\n").split("\n\n")
    assert title.startswith("# ")
    assert summary.startswith("Each model was trained on ")
    shown = "\n\n".join(sections)
    for other_table in ("Learning rates, chosen by ", "Cost of training, "):
        shown = shown.partition(f"\n\n{other_table}")[0]
    assert "\n\n".join(tables) == shown


def test_table_of_longer_context(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    import longer_context

    folder = RESULTS / "examples/longer-context"
    results = load(folder / "results.json").results
    assert longer_context.table(results) == (folder / "table.md").read_text(encoding="utf-8")


def test_tables_of_tutorial():
    folder = RESULTS / "examples/tutorial"
    records = [*load(folder / "alibi-128.json").results]
    records += load(folder / "sinusoidal-128.json").results
    table = (folder / "table.md").read_text(encoding="utf-8")
    assert table == f"# Tutorial: perplexity\n\n{length_table(records)}"


def test_tables_of_removed_positions():
    folder = RESULTS / "examples/removed-positions"
    labels = {
        "rotary": "Rotary (original)",
        "kept": "Rotary, continued",
        "removed": "Positions removed",
    }
    records = []
    for name, label in labels.items():
        for result in load(folder / f"{name}.json").results:
            records.append(replace(result, series=replace(result.series, label=label)))
    page = (folder / "table.md").read_text(encoding="utf-8")
    title, _, tables = page.partition("\n\n")
    assert title.startswith("# ")
    assert tables == length_table(records)


@pytest.mark.parametrize(
    ("page", "example", "count"),
    [
        ("README.md", "demo", 1),
        ("docs/reports.md", "demo", 1),
        ("docs/tutorial.md", "tutorial", 1),
        ("docs/compare.md", "modern-block", 2),  # perplexities and differences
        ("docs/probes.md", "recall", 1),
    ],
)
def test_pages_show_tables_of_examples(page, example, count):
    table = (RESULTS / "examples" / example / "table.md").read_text(encoding="utf-8")
    blocks = [block.strip() for block in table.split("\n\n") if block.startswith("|")]
    text = (ROOT / page).read_text(encoding="utf-8")
    assert sum(block in text for block in blocks) == count


def test_page_of_evaluation_shows_part_of_results_of_primary_model():
    model = RESULTS / "small_models/primary/cells/wikipedia-alibi-128-seed1"
    disjoint = sliding = None
    for result in load(model / "evaluation.json").results:
        if result.case.length == 512 and not result.reading.variant:
            if result.case.nonoverlapping:
                disjoint = result
            else:
                sliding = result
    header, *rows = cells_of(evaluation_table([disjoint, sliding]))
    columns = [header.index(name) for name in ("L", "S", "mean ctx", "perplexity", "bits/byte")]
    shown = [[row[column] for column in columns] for row in (header, *rows)]
    page = (ROOT / "docs/evaluation.md").read_text(encoding="utf-8")
    assert markdown.table(shown[0], shown[1:]).strip() in page


def test_page_of_windows_shows_part_of_loss_by_position_of_primary_models():
    results = []
    for method in ("alibi", "sinusoidal"):
        pattern = f"wikipedia-{method}-128-seed*/evaluation.json"
        for path in sorted((RESULTS / "small_models/primary/cells").glob(pattern)):
            results += load(path).results
    (by_position,) = position_tables(results)
    columns = [
        by_position.headers.index(name)
        for name in ("position", "ALiBi, L=128", "Sinusoidal, L=128")
    ]
    rows = []
    for row in by_position.cells:
        if row[0] in ("1", "9–12", "97–128", "129–192", "385–512", "1537–2048"):
            rows.append([row[column] for column in columns])
    printed = markdown.table([by_position.headers[column] for column in columns], rows)
    assert len(rows) == 6
    assert printed.strip() in (ROOT / "docs/windows.md").read_text(encoding="utf-8")


def test_example_of_results_page_prints_its_output(monkeypatch, capsys):
    page = (ROOT / "docs/results.md").read_text(encoding="utf-8")
    code, output = re.search(r"```python\n(.*?)```\n\n```text\n(.*?)```", page, re.DOTALL).groups()
    monkeypatch.chdir(ROOT)
    exec(code)
    assert capsys.readouterr().out.startswith(output.removesuffix("…\n"))


def test_page_of_recall_shows_measured_table():
    measured = json.loads((RESULTS / "recall/title-3M.json").read_text(encoding="utf-8"))
    printed = markdown.to_markdown([recall_table(measured["results"], measured["split"])])
    _, table, *_ = printed.split("\n\n")
    assert table.strip() in (ROOT / "docs/recall.md").read_text(encoding="utf-8")


def results_files() -> list[Path]:
    """Return all committed results files."""
    files = []
    for path in sorted(RESULTS.rglob("*.json")):
        if "schema" in json.loads(path.read_bytes()):
            files.append(path)
    return files


def test_results_files_are_written_as_they_were_read(tmp_path):
    files = results_files()
    assert len(files) > 200
    for path in files:
        content = json.loads(path.read_bytes())
        if content["schema"] == BENCHMARK_SCHEMA:
            save_benchmarks(parse_benchmarks(content, str(path)), tmp_path / "results.json")
        else:
            save(load(path), tmp_path / "results.json")
        assert (tmp_path / "results.json").read_bytes() == path.read_bytes(), path


def assert_same(folder: Path, name: str, committed: Path = ROOT) -> None:
    """Assert that a file has the bytes of the committed one."""
    assert (folder / name).read_bytes() == (committed / name).read_bytes()
