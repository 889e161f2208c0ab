"""Results files for the tests, and readers of Markdown tables and figures."""

from __future__ import annotations

import math
from contextlib import contextmanager

import pytest
from matplotlib.figure import Figure

PROVENANCE = {
    "command": "alibi-fairseq eval data --path checkpoint.pt",
    "git_commit": "0" * 40,
    "git_clean": True,
    "data_sha256": "a" * 64,
    "dictionary_sha256": "b" * 64,
    "versions": {
        "python": "3.11.7",
        "torch": "2.13.0",
        "fairseq": "fairseq-fixed 0.12.3.1",
        "numpy": "2.4.6",
        "alibi_fairseq": "1.0",
    },
    "hardware": {"cpu": "a processor", "cores": 2, "memory_gb": 24.0, "gpu": None},
    "threads": 2,
    "precision": "fp32",
    "seed": 1,
    "date": "2026-01-31T12:00:00Z",
    "seconds": 12.5,
}


def evaluation_cell(perplexity: float = 16.0, **changes) -> dict:
    cell = {
        "position_method": "alibi",
        "train_length": 64,
        "length": 128,
        "stride": 128,
        "subset": "valid",
        "tokens": 1000,
        "loss_bits": math.log2(perplexity),
        "perplexity": perplexity,
    }
    return cell | {"stride": changes.get("length", 128)} | changes


def document(*cells: dict, kind: str = "evaluation", corpus: str = "demo", **provenance) -> dict:
    return {
        "schema": "alibi_fairseq/results",
        "version": 1,
        "kind": kind,
        "corpus": corpus,
        "provenance": PROVENANCE | provenance,
        "cells": list(cells),
    }


def cells_of(text: str) -> list[list[str]]:
    """Return the rows of the Markdown tables in a text, without the rules below the headers."""
    rows = [line.strip()[1:-1].split("|") for line in text.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in row] for row in rows]
    return [row for row in rows if not is_rule(row)]


def is_rule(row: list[str]) -> bool:
    """Return True if a row is the rule below the header of a table."""
    return all(cell and set(cell) <= set("-:") for cell in row)


@contextmanager
def figures_as_svg():
    """Draw figures in SVG only. Files of other formats are created, but empty."""
    savefig = Figure.savefig

    def only_svg(figure, stream, format, **options):
        if format == "svg":
            savefig(figure, stream, format=format, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", only_svg)
        yield
