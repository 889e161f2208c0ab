"""Tables in README.md, docs/, and results/examples/ are those of committed results."""

from __future__ import annotations

import json

from commands import ROOT

from alibi_fairseq.reporting import markdown
from alibi_fairseq.reporting.loss_by_position import position_tables
from alibi_fairseq.reporting.perplexity_by_length import length_tables
from alibi_fairseq.reporting.probes import accuracy_table
from alibi_fairseq.results.measurements import measurements_of


def test_readme_shows_table_of_demonstration():
    folder = ROOT / "results/examples/demo"
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    (table, _) = length_tables(measurements_of(results))  # per token, and per byte
    printed = markdown.table(table.headers, table.rows).strip()
    for page in (folder / "table.md", ROOT / "README.md"):
        assert printed in page.read_text(encoding="utf-8")


def test_evaluation_page_shows_loss_by_position_of_primary_models():
    results = []
    for method in ("alibi", "sinusoidal"):
        pattern = f"wikipedia-{method}-128-seed*/evaluation.json"
        for path in sorted((ROOT / "results/small_models/primary/cells").glob(pattern)):
            results.append(json.loads(path.read_text(encoding="utf-8")))
    (table,) = position_tables(measurements_of(*results))
    printed = markdown.table(table.headers, table.rows)
    assert printed.strip() in (ROOT / "docs/evaluation.md").read_text(encoding="utf-8")


def test_example_of_probe_shows_its_results():
    folder = ROOT / "results/examples/recall"
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    assert accuracy_table(results).strip() in (folder / "table.md").read_text(encoding="utf-8")
