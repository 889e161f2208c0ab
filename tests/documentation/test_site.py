"""Documentation site: it builds offline, without broken links or assets of other hosts.

Its reference, docs/api.md, is also a page for readers on GitHub, with examples that run.
"""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module

import pytest
import torch
from commands import ROOT

#: Attributes with which a page loads something, rather than links to it.
LOADED = re.compile(r'<(?:script|img|iframe)[^>]*\ssrc="([^"]+)"|<link[^>]*\shref="([^"]+)"')

REFERENCE = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
#: Modules whose documentation the site adds to the reference.
MODULES = re.findall(r"^<!-- reference: (\S+) -->$", REFERENCE, re.MULTILINE)


def test_site_builds_and_loads_only_own_files(tmp_path):
    pytest.importorskip("mkdocs")
    pytest.importorskip("material")
    pytest.importorskip("mkdocstrings")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    build = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert build.returncode == 0, build.stderr
    pages = list(tmp_path.rglob("*.html"))
    assert (tmp_path / "docs" / "api.html") in pages
    for page in pages:
        loaded = list(LOADED.finditer(page.read_text(encoding="utf-8")))
        assert loaded, f"{page.name} loads nothing, not even its style sheet"
        for match in loaded:
            assert "//" not in (match[1] or match[2]), f"{page.name} loads {match[0]}"
    # Headings that are made from docstrings.
    reference = (tmp_path / "docs" / "api.html").read_text(encoding="utf-8")
    for module in MODULES:
        assert f'id="{module}"' in reference
    assert 'id="alibi_fairseq.positions.base.PositionMethod.bias"' in reference


@pytest.mark.parametrize("module", MODULES)
def test_reference_names_modules(module):
    assert import_module(module).__doc__


def test_examples_of_reference_run(monkeypatch):
    monkeypatch.chdir(ROOT)
    variables: dict = {}
    exec("".join(re.findall(r"```python\n(.*?)```", REFERENCE, re.DOTALL)), variables)
    slopes = torch.tensor([1 / 4, 1 / 16, 1 / 64, 1 / 256])
    assert torch.equal(variables["alibi_slopes"](4), slopes)
    assert variables["output"].shape == (2, 4, 128, 16)
    assert variables["x"].shape == (2, 128, 64)
    last = variables["windows"][-1]
    assert (last.start, last.first_scored, last.stop) == (512, 896, 1000)
    again = variables["from_mapping"](variables["as_mapping"](variables["comparison"]))
    assert again == variables["comparison"]
    assert [result.case.length for result in variables["loaded"].results] == [128, 512, 2048]
