"""Links between the documents lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted(
    path
    for folder in (
        ".",
        "docs",
        "benchmarks",
        "configs",
        "results",
        "results/paper",
        "results/data-prep",
        "data-prep",
    )
    for path in (ROOT / folder).glob("*.md")
) + sorted((ROOT / "data-prep").glob("*/README.md"))


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_relative_links_exist(path):
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    links = re.findall(r"\]\(([^)#\s]+)", text)
    missing = [link for link in links if "://" not in link and not (path.parent / link).exists()]
    assert not missing
