"""Catalog of position methods in the documentation."""

from __future__ import annotations

import re

import pytest

from alibi_fairseq.positions import PositionConfig, build_position_method
from alibi_fairseq.positions.display_names import METHOD_NAMES
from scripts.method_catalog import CATALOGS, changes_by_name, read_methods, update
from studies.analysis.by_length import MethodChange


@pytest.mark.parametrize("page", CATALOGS, ids=lambda page: page.name)
def test_catalogs_are_current(page):
    text = page.read_text(encoding="utf-8")
    assert update(text, CATALOGS[page]()) == text


def test_catalog_prefers_default_options():
    """A method has its own options only if the study lacks it with the default ones."""
    notations = ("alibi/alibi_slopes=even", "inkling/inkling_extent=128", "alibi", "kerple")
    by_name = changes_by_name([MethodChange(notation, None) for notation in notations])
    assert {name: change.method for name, change in by_name.items()} == {
        "inkling": "inkling/inkling_extent=128",
        "alibi": "alibi",
        "kerple": "kerple",
    }


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
