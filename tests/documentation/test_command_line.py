"""Command-line reference, docs/command-line.md, against the parsers of the commands."""

from __future__ import annotations

import importlib.util

from commands import ROOT

PATH = ROOT / "scripts" / "command_line.py"


def test_command_line_page_is_current():
    spec = importlib.util.spec_from_file_location("command_line", PATH)
    generator = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generator)
    committed = generator.PAGE.read_text(encoding="utf-8")
    assert committed == generator.page(), "run python scripts/command_line.py"
