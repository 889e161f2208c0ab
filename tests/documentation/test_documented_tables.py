"""Tables in README.md, docs/, and results/examples/ are those of committed results."""

from __future__ import annotations

import pytest
from commands import ROOT

from alibi_fairseq.reporting import markdown
from alibi_fairseq.reporting.loss_by_position import position_tables
from alibi_fairseq.reporting.perplexity_by_length import length_table, length_tables
from alibi_fairseq.reporting.probes import accuracy_table
from alibi_fairseq.results.files import load_results_file


def test_readme_shows_table_of_demonstration():
    folder = ROOT / "results/examples/demo"
    results = load_results_file(folder / "results.json")
    (table, _) = length_tables(results.records)  # per token, and per byte
    printed = markdown.table(table.headers, table.rows).strip()
    for page in (folder / "table.md", ROOT / "README.md"):
        assert printed in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("block", ["paper", "modern"])
def test_examples_of_blocks_show_their_results(block):
    folder = ROOT / f"results/examples/{block}-block"
    results = load_results_file(folder / "results.json")
    tables = length_table(results.records).rstrip()  # with the conditions above them
    assert tables in (folder / "table.md").read_text(encoding="utf-8")


def test_example_of_removed_positions_shows_its_results():
    folder = ROOT / "results/examples/removed-positions"
    records = []
    for name in ("kept", "removed", "rotary"):
        records += load_results_file(folder / f"{name}.json").records
    tables = length_table(records)
    assert (folder / "table.md").read_text(encoding="utf-8").endswith(tables)


def test_evaluation_page_shows_part_of_loss_by_position_of_primary_models():
    results = []
    for method in ("alibi", "sinusoidal"):
        pattern = f"wikipedia-{method}-128-seed*/evaluation.json"
        for path in sorted((ROOT / "results/small_models/primary/cells").glob(pattern)):
            results += load_results_file(path).records
    (table,) = position_tables(results)
    columns = [
        table.headers.index(name) for name in ("position", "ALiBi, L=128", "Sinusoidal, L=128")
    ]
    rows = []
    for row in table.rows:
        if row[0] in ("1", "9–12", "97–128", "129–192", "385–512", "1537–2048"):
            rows.append([row[column].removesuffix(" (3 seeds)") for column in columns])
    printed = markdown.table([table.headers[column] for column in columns], rows)
    assert len(rows) == 6
    assert printed.strip() in (ROOT / "docs/evaluation.md").read_text(encoding="utf-8")


def test_example_of_probe_shows_its_results():
    folder = ROOT / "results/examples/recall"
    results = load_results_file(folder / "results.json")
    assert accuracy_table(results.records).strip() in (folder / "table.md").read_text(
        encoding="utf-8"
    )
