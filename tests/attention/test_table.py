"""The table of methods and backends in the documentation is what the backends say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from attention_calls import Call

from alibi_fairseq.attention import BACKENDS
from alibi_fairseq.positions import METHODS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "attention-backends.md"


def documented() -> dict[str, dict[str, str]]:
    rows = [
        [cell.strip(" `") for cell in line.strip("|").split("|")]
        for line in PAGE.read_text(encoding="utf-8").splitlines()
        if re.match(r"\| (method|\w+) \| (`|yes)", line)
    ]
    header, *body = rows
    return {row[0]: dict(zip(header[1:], row[1:], strict=True)) for row in body}


@pytest.mark.parametrize("method", list(METHODS))
def test_methods_and_backends(method):
    bias = Call(method=method).bias()
    expected = {name: "yes" if b.supports(bias) else "no" for name, b in BACKENDS.items()}
    assert documented()[method] == expected


def test_no_other_rows():
    assert list(documented()) == list(METHODS)
