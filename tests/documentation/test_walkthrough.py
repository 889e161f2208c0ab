"""docs/walkthrough.md: the code that it names exists."""

from __future__ import annotations

import re
from importlib import import_module
from types import FunctionType, ModuleType

import pytest
from commands import ROOT

PAGE = (ROOT / "docs" / "walkthrough.md").read_text(encoding="utf-8")
#: A file, and the names of what to read in it.
FILES = re.findall(r"`([\w/]+)\.py`(?:\]\([^)]*\))?: ((?:`[^`]+`(?:, )?)+)", PAGE)
#: The text and the target of each link to a file.
LINKS = re.findall(r"\[`([^`]+)`\]\(([^)]+)\)", PAGE)


def is_defined(module: ModuleType, name: str) -> bool:
    """Return True if a module defines what has a name, or a class with a method of a name."""
    first, *members = name.removesuffix(" (fields)").split(".")
    if first not in vars(module):
        return False
    found = vars(module)[first]
    is_code = isinstance(found, type | FunctionType)
    if is_code and found.__module__ != module.__name__:  # imported from another file
        return False
    return all(member in vars(found) for member in members)


@pytest.mark.parametrize(("file", "names"), FILES, ids=[file for file, _ in FILES])
def test_named_code_exists(file, names):
    module = import_module(f"alibi_fairseq.{file.replace('/', '.')}")
    for name in re.findall(r"`([^`]+)`", names):
        assert is_defined(module, name), name


def test_links_lead_to_the_files_that_they_name():
    assert LINKS
    for text, target in LINKS:
        assert target == f"../alibi_fairseq/{text}"


def test_page_names_both_commands():
    steps = re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)
    assert len(FILES) > len(steps) > 20
