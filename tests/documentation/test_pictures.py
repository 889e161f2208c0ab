"""Pictures of the documentation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from commands import ROOT
from figure_texts import figure_texts

pytest.importorskip("tomllib", reason="Python 3.11 or later")
from scripts.pictures.__main__ import draw_pictures
from scripts.pictures.layers import CORE, read_layers

PICTURES = ROOT / "docs" / "pictures"


@pytest.fixture(scope="module")
def drawn(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    draw_pictures(folder)
    return folder


def test_committed_pictures_have_the_texts_of_current_results(drawn):
    names = {path.name for path in drawn.iterdir()}
    assert names == {path.name for path in PICTURES.iterdir()}
    assert len(names) == 6
    for name in names:
        assert figure_texts(PICTURES / name) == figure_texts(drawn / name), name


def test_committed_pictures_are_on_pages():
    files = [*(ROOT / "docs").glob("*.md"), ROOT / "results/examples/README.md"]
    pages = "".join(path.read_text(encoding="utf-8") for path in files)
    for path in PICTURES.iterdir():
        alt = re.search(rf"!\[([^\]]+)\]\([./docs]*pictures/{path.name}\)", pages)[1]
        assert len(alt) > 40, "the alternative text says what one sees"


def test_layers_have_every_package(drawn):
    texts = figure_texts(drawn / "layers.svg")
    folders = [path.parent for path in (ROOT / "alibi_fairseq").glob("*/__init__.py")]
    assert {folder.name for folder in folders} <= set(texts)
    layers = read_layers()
    assert texts.index(layers[0][0]) < texts.index(layers[-1][0])
    assert {package for layer in layers for package in layer} >= CORE
