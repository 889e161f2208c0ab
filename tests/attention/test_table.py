"""The table of biases and backends in the documentation matches what the backends report."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from attention_calls import Call

from alibi_fairseq.attention import BACKENDS
from alibi_fairseq.positions import METHODS, GateBias, RelativeBias, ScoreBias
from alibi_fairseq.positions.alibi import LinearBias

PAGE = Path(__file__).resolve().parents[2] / "docs" / "attention-backends.md"
#: Rows of the table, the most specific kind first.
KINDS = {
    "ALiBi": LinearBias,
    "distance only": RelativeBias,
    "gates": GateBias,
    "queries or keys": ScoreBias,
    "no bias": type(None),
}


def documented() -> dict[str, dict[str, str]]:
    rows = [
        [cell.strip(" `") for cell in line.strip("|").split("|")]
        for line in PAGE.read_text(encoding="utf-8").splitlines()
        if re.match(r"\| (bias depends on|[\w ]+) \| (`eager|yes)", line)
    ]
    header, *body = rows
    return {row[0]: dict(zip(header[1:], row[1:], strict=True)) for row in body}


@pytest.mark.parametrize("method", list(METHODS))
def test_methods_and_backends(method):
    bias = Call(method=method).bias()
    kind = next(name for name, type_ in KINDS.items() if isinstance(bias, type_))
    expected = {name: "yes" if b.supports(bias) else "no" for name, b in BACKENDS.items()}
    assert documented()[kind] == expected


def test_every_kind_has_a_row_and_a_method():
    assert list(documented()) == list(KINDS)
    biases = [Call(method=method).bias() for method in METHODS]
    assert all(any(isinstance(bias, kind) for bias in biases) for kind in KINDS.values())
