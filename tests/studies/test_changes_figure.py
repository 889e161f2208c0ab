"""Changes of all methods beyond their training length, and their figure."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from commands import ROOT
from figure_texts import figure_texts

from alibi_fairseq.positions.display_names import METHOD_NAMES
from studies.analysis.by_length import length_changes
from studies.analysis.study_results import StudyResults
from studies.sections.changes_figure import draw_length_changes
from studies.small_models.models import MODELS

SMALL_MODELS = ROOT / "results" / "small_models"


@pytest.fixture(scope="module")
def losses():
    return StudyResults.load(SMALL_MODELS / "secondary").losses


def test_changes_are_sorted_means_over_seeds_and_documents(losses):
    changes = length_changes(losses, MODELS, 16)
    plain = {change.method for change in changes if "/" not in change.method}
    # The study has Inkling with an extent only.
    assert plain == {*METHOD_NAMES} - {"inkling"}
    values = []
    for method, estimate in changes:
        nats = []
        name = method.replace("/", "-")
        for path in SMALL_MODELS.glob(f"secondary/cells/wikipedia-{name}-128-seed*"):
            nats.append(nats_at(path, 2048) - nats_at(path, 128))
        assert len(nats) == 3
        assert estimate.value == pytest.approx(np.mean(nats))
        low, high = estimate.interval()
        assert low < estimate.value < high
        values.append(estimate.value)
    assert values == sorted(values)


def nats_at(folder: Path, length: int) -> float:
    """Return the mean loss in windows of a length without overlap."""
    for result in json.loads((folder / "evaluation.json").read_text())["results"]:
        case, values = result["case"], result["values"]
        is_variant = "variant" in result["reading"]
        if (case["length"], case["stride"]) == (length, length) and not is_variant:
            bits = np.array(values["document_bits"]) / np.array(values["document_tokens"])
            return float(bits.mean()) * math.log(2)
    raise AssertionError(f"{folder} was not evaluated at {length}")


def test_figure_of_changes_has_row_per_method(losses, tmp_path):
    changes = length_changes(losses, MODELS, 16)
    figure = draw_length_changes(changes, "title", tmp_path / "changes.svg")
    texts = figure_texts(tmp_path / "changes.svg")
    assert texts.count("ALiBi") == 1
    assert texts.count("Rotary (RoPE)") == 1
    committed = figure_texts(SMALL_MODELS / "changes.svg")
    assert {*texts} - {"title"} < {*committed}
    alt, path = figure.removesuffix(")").split("](")
    assert path == "changes.svg"
    percentages = re.findall(r"[+-][\d.]+%", alt)
    assert len(percentages) == len(changes)
    assert {*percentages} <= {*texts}
