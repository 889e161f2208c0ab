"""Test of the changes at 4 L against the losses of the documents in the JSON."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from studies.analysis.compared_models import ComparedModels
from studies.analysis.study_results import StudyResults
from studies.sections.context_gain import context_gain_by_budget

HOUR = Path(__file__).parents[2] / "results" / "gpu" / "hour"


def mean_nats(length: int, stride: int, variant: str = "") -> float:
    """Return the mean loss of the ALiBi models of 512 tokens, from the JSON alone."""
    losses = []
    for seed in (1, 2, 3):
        folder = HOUR / "cells" / f"books-alibi-512-seed{seed}"
        for path in folder.glob("evaluation*.json"):
            for result in json.loads(path.read_text())["results"]:
                case, values = result["case"], result["values"]
                read = (case["length"], case["stride"], result["reading"].get("variant", ""))
                if read == (length, stride, variant):
                    for bits, tokens in zip(
                        values["document_bits"], values["document_tokens"], strict=True
                    ):
                        losses.append(bits * math.log(2) / tokens)
    assert len(losses) == 3 * 30
    return sum(losses) / len(losses)


def test_changes_at_four_times_the_length_follow_from_the_documents():
    study = StudyResults.load(HOUR)
    section = context_gain_by_budget([(study, ComparedModels("books", 512))])
    *_, row = section.splitlines()
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[:4] == ["23M", "49.1M", "books", "512"]
    changes = [
        mean_nats(2048, 2048) - mean_nats(512, 512),
        mean_nats(2048, 64) - mean_nats(512, 64),
        mean_nats(2048, 2048, "limited") - mean_nats(2048, 2048),
    ]
    for cell, change in zip(cells[4::2], changes, strict=True):
        assert float(cell.removesuffix("%")) == pytest.approx(100 * math.expm1(change), rel=0.02)


def test_sets_without_results_are_left_out(tmp_path):
    study = StudyResults.load(tmp_path)
    assert context_gain_by_budget([(study, ComparedModels("books", 512))]) == ""
