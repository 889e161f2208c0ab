"""What ``scripts/mutation.py`` changes and leaves alone, and that it sees which tests notice."""

from __future__ import annotations

import pytest

pytest.importorskip("mutmut", reason='needs the extra "mutation"')

from mutating.mutations import find, sample
from mutating.trials import Trials

SOURCE = '''\
"""Adds 1 + 1."""

__all__ = ["more"]
STEP: int = 5


def more(x: int | None = 4) -> int:
    """3 + 3"""
    if not isinstance(x, int):
        raise ValueError(f"{x + 2} is wrong", 6)
    return x + STEP
'''
TESTS = """
from alibi_fairseq.preemption import more

def test_type(): assert isinstance(more(2), int)
def test_value(): assert more(2) == 7
def test_default(): assert more() == 9
"""


@pytest.fixture
def checkout(tmp_path):
    (tmp_path / "checkout" / "alibi_fairseq").mkdir(parents=True)
    (tmp_path / "checkout" / "alibi_fairseq" / "__init__.py").touch()
    (tmp_path / "checkout" / "alibi_fairseq" / "preemption.py").write_text(SOURCE)
    (tmp_path / "checkout" / "test_more.py").write_text(TESTS)
    return tmp_path / "checkout"


def test_what_is_changed(checkout):
    """Not what documentation, annotations, messages and public names say."""
    found, places = sample(checkout, "preemption", 100, 1)
    assert places == len(found) == 5
    assert {mutation.after for mutation in found} == {
        *("STEP: int = None", "STEP: int = 6", "def more(x: int | None = 5) -> int:"),
        *("if isinstance(x, int):", "return x - STEP"),
    }
    assert all(compile(mutation.code, "", "exec") for mutation in found)
    assert sample(checkout, "preemption", 3, 1)[0] == found[:3]
    for mutation in found:
        known = mutation.name, mutation.before, mutation.after
        assert find(checkout, *known) == mutation
        assert find(checkout, mutation.name, "x = 1", mutation.after) is None
    assert {m.name for m in sample(checkout, "preemption", 100, 2)[0]} == {m.name for m in found}


@pytest.mark.slow
def test_which_test_notices(checkout):
    trials = Trials(checkout.parent)
    of_value = {"test_more.py": [f"test_more.py::test_{name}" for name in ("type", "value")]}
    assert trials.run(of_value, 60) is None
    source = checkout / "alibi_fairseq" / "preemption.py"
    source.write_text(SOURCE.replace("x + STEP", "x - STEP"))
    assert trials.run(of_value, 60) == "test_more.py::test_value"
    assert trials.run({"test_more.py": ["test_more.py::test_type"]}, 60) is None
    source.write_text(SOURCE.replace("x + STEP", "1 / 0"))
    assert trials.run(of_value, 60) == "test_more.py::test_type"
    source.write_text(SOURCE.replace("return x", "while x: pass\n    return x"))
    assert trials.run(of_value, 5) == "time"
