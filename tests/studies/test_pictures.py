"""Pictures of the documentation, and the catalog of position methods."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from commands import ROOT
from figure_texts import figure_texts

from alibi_fairseq.positions import PositionConfig, build_position_method
from alibi_fairseq.positions.spec import METHOD_NAMES
from studies.changes import changes_alt, draw_length_changes, length_changes
from studies.losses import load_losses
from studies.method_catalog import PAGE, read_methods, update
from studies.small_models.groups import MODELS

pytest.importorskip("tomllib", reason="Python 3.11 or later")
from studies.pictures.__main__ import draw_pictures
from studies.pictures.layers import CORE, read_layers

PICTURES = ROOT / "docs" / "pictures"
SMALL_MODELS = ROOT / "results" / "small_models"


@pytest.fixture(scope="module")
def drawn(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    draw_pictures(folder)
    return folder


@pytest.fixture(scope="module")
def losses():
    return load_losses(SMALL_MODELS / "secondary")


def test_committed_pictures_have_the_texts_of_current_results(drawn):
    names = {path.name for path in drawn.iterdir()}
    assert names == {path.name for path in PICTURES.iterdir()}
    assert len(names) == 5
    for name in names:
        assert figure_texts(PICTURES / name) == figure_texts(drawn / name), name


def test_committed_pictures_are_on_pages():
    pages = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md"))
    for path in PICTURES.iterdir():
        alt = re.search(rf"!\[([^\]]+)\]\(pictures/{path.name}\)", pages)[1]
        assert len(alt) > 40, "the alternative text says what one sees"


def test_layers_have_every_package(drawn):
    texts = figure_texts(drawn / "layers.svg")
    folders = [path.parent for path in (ROOT / "alibi_fairseq").glob("*/__init__.py")]
    assert {folder.name for folder in folders} <= set(texts)
    layers = read_layers()
    assert texts.index(layers[0][0]) < texts.index(layers[-1][0])
    assert {package for layer in layers for package in layer} >= CORE


def test_changes_are_sorted_means_over_seeds_and_articles(losses):
    changes = length_changes(losses, MODELS, 16)
    assert {change.method for change in changes} == set(METHOD_NAMES)
    values = []
    for method, estimate in changes:
        nats = []
        for path in SMALL_MODELS.glob(f"secondary/cells/wikipedia-{method}-128-seed*"):
            nats.append(nats_at(path, 2048) - nats_at(path, 128))
        assert len(nats) == 3
        assert estimate.value == pytest.approx(np.mean(nats))
        low, high = estimate.interval()
        assert low < estimate.value < high
        values.append(estimate.value)
    assert values == sorted(values)


def nats_at(folder: Path, length: int) -> float:
    """Return the mean loss in windows of a length without overlap."""
    records = json.loads((folder / "evaluation.json").read_text())["records"]
    for record in records:
        if (record["length"], record["stride"]) == (length, length) and not record["model"].get(
            "label"
        ):
            bits = np.array(record["document_bits"]) / np.array(record["document_tokens"])
            return float(bits.mean()) * math.log(2)
    raise AssertionError(f"{folder} was not evaluated at {length}")


def test_figure_of_changes_has_row_per_method(losses, tmp_path):
    changes = length_changes(losses, MODELS, 16)
    draw_length_changes(changes, "title", tmp_path / "changes.svg")
    texts = figure_texts(tmp_path / "changes.svg")
    assert texts.count("ALiBi") == 1
    assert texts.count("Rotary (RoPE)") == 1
    committed = figure_texts(SMALL_MODELS / "changes.svg")
    assert {*texts} - {"title"} < {*committed}
    for method_and_change in changes_alt(changes).split(": ")[1].split(", "):
        *_, change = method_and_change.split()
        assert change in texts


def test_catalog_is_current():
    text = PAGE.read_text(encoding="utf-8")
    assert update(text) == text


@pytest.mark.parametrize("method", METHOD_NAMES)
@pytest.mark.parametrize(("width", "heads", "layers", "length"), [(64, 8, 2, 24), (96, 4, 3, 40)])
def test_catalog_counts_parameters(method, width, heads, layers, length):
    config = PositionConfig(
        embed_dim=width, num_heads=heads, num_layers=layers, train_length=length
    )
    parameters = build_position_method(method, config).parameters()
    sizes = {
        "C": width,
        "H": heads,
        "D": width // heads,
        "layers": layers,
        "train_length": length,
    }
    formula = read_methods()[method]["parameters"]
    assert set(re.findall(r"[A-Za-z_]+", formula)) <= set(sizes)
    expected = eval(formula, {"__builtins__": {}}, sizes)
    assert sum(parameter.numel() for parameter in parameters) == expected
