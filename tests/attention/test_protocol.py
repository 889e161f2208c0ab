"""Every backend implements the written protocol."""

from __future__ import annotations

import inspect

import pytest

from alibi_fairseq.attention import BACKENDS
from alibi_fairseq.attention.chooser import Backend

METHODS = ("supports", "unsupported_reason", "attend")


@pytest.mark.parametrize("name", list(BACKENDS))
def test_backends_implement_the_protocol(name):
    backend = BACKENDS[name]
    assert isinstance(backend, Backend)
    for method in METHODS:
        expected = list(inspect.signature(getattr(Backend, method)).parameters)[1:]  # no self
        parameters = inspect.signature(getattr(backend, method)).parameters
        required = [p.name for p in parameters.values() if p.default is inspect.Parameter.empty]
        assert required == expected
