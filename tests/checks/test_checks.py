"""Checks of position methods: built-in methods pass, and each mistake fails one check."""

from __future__ import annotations

import pytest
import torch
from broken_methods import BROKEN, WORKING, FeaturesOfTheCall

from alibi_fairseq.checks.candidate import Candidate
from alibi_fairseq.checks.checks import CHECKS, MAX_DIFFERENCE, NOTHING, check_documents, run_checks
from alibi_fairseq.positions import METHODS, MethodSpec

pytestmark = pytest.mark.usefixtures("uncompiled_flex")

BUILT_IN = sorted(METHODS)
OPTIONS = [
    "alibi/alibi_slopes=trainable",
    "alibi/alibi_distance=log/alibi_clamp=0.5",
    "alibi/alibi_slopes=even/alibi_cap=3",
    "alibi/attention_window=5",
    "learned/clamp_learned_positions=true",
    "fox+alibi+fire/attention_window=0+7",
    "rotary+rotary+none",
    "rotary/rotary_scaling=yarn:4",
    "rotary/score_scaling=logn",
    "transformer_xl/mem_len=32",
]


def candidate_of(notation):
    return Candidate(notation, tuple(MethodSpec.parse(notation).flags), torch.device("cpu"))


def outcomes_of(notation):
    return run_checks(candidate_of(notation))


def failed(outcomes):
    return [check for check, outcome in outcomes.items() if not outcome.passed]


@pytest.fixture
def register(monkeypatch):
    """Return a function that registers a method until the end of the test."""

    def register(method):
        monkeypatch.setitem(METHODS, "mine", method)
        return "mine"

    return register


@pytest.mark.ci
@pytest.mark.parametrize("notation", [*BUILT_IN, *OPTIONS])
def test_built_in_methods_pass(notation):
    outcomes = outcomes_of(notation)
    assert outcomes.keys() == CHECKS.keys()
    assert not failed(outcomes), [outcome.note for outcome in outcomes.values()]


@pytest.mark.parametrize(
    ("notation", "has_number"), [("transformer_xl", True), ("transformer_xl/mem_len=32", False)]
)
def test_documents_cannot_be_checked_with_a_memory(notation, has_number):
    outcome = check_documents(candidate_of(notation))
    assert outcome.passed
    if has_number:
        assert float(outcome.cell) < MAX_DIFFERENCE
    else:
        assert outcome.cell == NOTHING
        assert "--mem-len" in outcome.note


@pytest.mark.parametrize("method", WORKING)
def test_working_plugins_pass(register, method):
    assert not failed(outcomes_of(register(method)))


@pytest.mark.parametrize(("method", "check"), BROKEN)
def test_each_mistake_fails_one_check(register, method, check):
    outcomes = outcomes_of(register(method))
    assert failed(outcomes) == [check]
    assert outcomes[check].cell.startswith("FAILS")
    assert outcomes[check].note


@pytest.mark.ci
def test_features_must_not_depend_on_other_tokens(register):
    outcomes = outcomes_of(register(FeaturesOfTheCall))
    assert {"cached decoding", "blocks"} <= set(failed(outcomes))
    assert "features of a block of tokens differ" in outcomes["blocks"].note


def test_every_check_has_a_mistake_that_it_finds():
    assert {check for _, check in BROKEN} == CHECKS.keys()
