"""Damaged and hostile files are read or refused with one sentence."""

from __future__ import annotations

import pytest
from fuzzing import targets
from fuzzing.inputs import PROGRAM
from fuzzing.targets import FOUND, TARGETS, outcome, seeds
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

BEFORE = sorted(FOUND.glob("*/*"))


@pytest.mark.parametrize("path", BEFORE, ids=[f"{path.parent.name}-{path.name}" for path in BEFORE])
def test_what_was_found_before(path, tmp_path):
    assert outcome(path.parent.name, path.read_bytes(), tmp_path) in ("accepted", "refused")


@pytest.mark.parametrize("target", [name for name in TARGETS if not name.endswith("contents")])
def test_valid_files_are_accepted(target, tmp_path):
    assert outcome(target, b"", tmp_path) == "accepted"


def test_an_exception_would_be_seen(tmp_path, monkeypatch):
    monkeypatch.setitem(targets.TARGETS, "results", lambda data, folder: {}["missing"])
    assert outcome("results", b"", tmp_path).startswith("KeyError in ")


@pytest.mark.slow
@pytest.mark.parametrize("target", [name for name in TARGETS if not name.endswith("contents")])
def test_a_short_run(target, tmp_path):
    """Without coverage to guide it: edits of the valid files, and pieces of them with any bytes."""
    files = [file for file in seeds(target) if file[:1] >= bytes([PROGRAM])] or [b""]
    pieces = st.builds(
        lambda file, at, junk: file[: at % (len(file) + 1)] + junk,
        st.sampled_from(files),
        st.integers(0, 5000),
        st.binary(max_size=20),
    )

    @settings(
        max_examples=300,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.one_of(st.binary(max_size=40), pieces))
    def run(data):
        assert outcome(target, data, tmp_path) in ("accepted", "refused")

    run()
