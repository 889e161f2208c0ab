"""Documentation site: it builds offline, without broken links or assets of other hosts."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from commands import ROOT

#: Attributes with which a page loads something, rather than links to it.
LOADED = re.compile(r'<(?:script|img|iframe)[^>]*\ssrc="([^"]+)"|<link[^>]*\shref="([^"]+)"')


@pytest.mark.slow
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
    assert "PositionMethod" in (tmp_path / "docs" / "api.html").read_text(encoding="utf-8")
