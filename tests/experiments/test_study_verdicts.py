"""Verdicts on claims: each needs its effect, of the right sign, and more than a single seed."""

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from commands import ROOT

from alibi_fairseq.cli import main
from alibi_fairseq.experiments.bootstrap import Interval, Losses
from alibi_fairseq.experiments.claims import (
    CLAIMS,
    CONTRADICTED,
    DIRECTION,
    NOT_HERE,
    NOT_RUN,
    OPEN,
    SIZE,
    Evaluation,
    Finding,
    Results,
    papers,
    worst,
)
from alibi_fairseq.paper.recipe import CONFIGS

STUDY = ROOT / "results" / "study"


@pytest.mark.parametrize(
    "paper, direction, value, low, high, verdict",
    [
        (-0.02, -1, -0.03, -0.04, -0.02, SIZE),
        (-0.02, -1, -0.05, -0.06, -0.04, DIRECTION),  # more than twice the paper's
        (-0.02, -1, -0.006, -0.007, -0.0055, DIRECTION),  # less than half of it
        (math.nan, -1, -0.03, -0.04, -0.02, DIRECTION),  # no number to compare with
        (-0.02, -1, -0.03, -0.06, 0.0, OPEN),
        (-0.02, -1, -0.006, -0.008, -0.004, OPEN),
        (-0.02, -1, -0.003, -0.004, -0.002, CONTRADICTED),  # too small to count
        (-0.02, -1, 0.03, 0.02, 0.04, CONTRADICTED),
        (0.5, 1, 0.4, 0.3, 0.5, SIZE),
        (0.5, 1, -0.4, -0.5, -0.3, CONTRADICTED),
        (0.001, 0, 0.001, -0.004, 0.004, SIZE),
        (0.001, 0, 0.001, -0.01, 0.004, OPEN),
        (0.001, 0, 0.18, 0.17, 0.19, CONTRADICTED),  # level has two sides
        (0.001, 0, -0.18, -0.19, -0.17, CONTRADICTED),
        (-0.02, None, -0.03, -0.04, -0.02, ""),
    ],
)
def test_rule(paper, direction, value, low, high, verdict):
    number = Interval(value, low, high)
    assert Finding("", number, paper, direction, (3, 3)).verdict == verdict
    single = Finding("", number, paper, direction, (3, 1)).verdict
    assert single == (OPEN if verdict else "")


@pytest.mark.parametrize(
    "item, one, other, change",
    [
        ("table05", "alibi 512 1x", "sinusoidal 512 1x", 19.73 / 20.05 - 1),
        ("table15", "alibi 512 2x S=1", "alibi 512 512 S=1", 17.92 / 17.98 - 1),
        ("table05", "t5 64 64", "alibi 64 64", math.nan),
    ],
)
def test_numbers_of_the_paper(item, one, other, change):
    found = papers(item, Evaluation.of(one), Evaluation.of(other))
    assert found == change or math.isnan(found) and math.isnan(change)


@pytest.fixture(scope="module")
def results():
    """Any losses, with little chance; speeds of which ALiBi's are level and T5's a tenth lower."""
    random, found = np.random.default_rng(0), {}
    tokens, documents = np.full(20, 100), random.normal(6, 1, 20)
    methods = ("alibi", "sinusoidal", "rotary", "t5", "none", "kerple", "fox")
    lengths = (128, 256, 512, "1x+50", 1024, 2048)
    variants = ("", "S=16", "S=1/4", "limited", "interpolated")
    for corpus, *case in product(("wikipedia", "books"), methods, (128, 512), lengths, variants):
        key = Evaluation.of(" ".join(map(str, case)), corpus)
        bits = random.normal(0, 0.1) + np.add.outer(random.normal(0, 1e-5, 3), documents)
        found[key] = Losses((corpus, *case[:2]), (1, 2, 3), bits * tokens, tokens)
    rounds = {
        (phase, method, 512): random.normal(1 + 0.1 * (method == "t5"), 0.01, 15)
        for phase in ("train", "evaluate")
        for method in ("sinusoidal", "alibi", "t5")
    }
    return Results(found, rounds)


def changed(results, change):
    """With other bits of each evaluation."""
    losses = {
        key: replace(each, bits=change(key, each.bits)) for key, each in results.losses.items()
    }
    return replace(results, losses=losses)


def test_the_page_comes_out_as_it_was_committed(tmp_path):
    """Its numbers are checked in tests/results/test_study_page.py."""
    for name in ("cells", "speeds.json"):
        (tmp_path / name).symlink_to(STUDY / name)
    assert main(["study", str(CONFIGS / "study.yaml"), "--results", str(tmp_path)]) == 0
    assert (tmp_path / "README.md").read_text() == (STUDY / "README.md").read_text()
    for name in ("study", "training"):
        assert (tmp_path / f"{name}.svg").is_file()
        assert (tmp_path / f"{name}.png").stat().st_size > 10_000


def test_no_claim_survives_the_opposite(results):
    """Every loss mirrored: no comparison with a direction may agree."""
    opposite, compared = changed(results, lambda _, bits: -bits), 0
    for claim in CLAIMS:
        if claim.speeds:
            continue
        for here, there in zip(claim.findings(results), claim.findings(opposite), strict=True):
            assert here.what == there.what
            if there.direction and abs(there.number.value) > 0.006:
                assert not {here.verdict, there.verdict} <= {SIZE, DIRECTION}, here.what
                compared += 1
    assert compared > 40


def test_every_claim_compares_something(results):
    counted = [len({each.what for each in claim.findings(results)}) for claim in CLAIMS]
    assert counted == [2, 4, 5, 15, 6, 1, 2, 4, 1, 5, 7, 2, 4, 2, 2, 4, 4]


def test_alibi_is_as_fast_and_t5_is_only_shown(results):
    (claim,) = (claim for claim in CLAIMS if claim.speeds)
    assert worst(claim.findings(results)) == SIZE
    found = {each.what: each for each in claim.findings(results)}
    assert len(found) == 4 and {each.verdict for each in found.values()} == {SIZE, ""}
    assert found["speed of T5 bias against sinusoidal at 512, train"].number.value < -0.05


def test_sinusoidal_counts_only_at_lengths_where_it_has_learned_positions(results):
    worse = changed(results, lambda key, bits: bits + 2 * (key.method == "none"))
    equal = changed(results, lambda key, bits: 0.5 * bits if key.method == "none" else bits)
    partly = changed(
        results, lambda key, bits: bits + (key.method == "none") * (300 - key.train_length)
    )
    about, refused = 0, []
    for claim in [each for each in CLAIMS if not each.speeds]:
        cases = (claim.findings(each) for each in (worse, equal, partly))
        for everywhere, nowhere, at_128 in zip(*cases, strict=True):
            about_it = "inusoidal" in everywhere.what and everywhere.direction is not None
            assert (nowhere.verdict == NOT_HERE) == (about_it or claim.large)
            assert claim.large or everywhere.verdict != NOT_HERE
            refused += [at_128.what] if at_128.verdict == NOT_HERE and not claim.large else []
            about += about_it
    assert about > 10
    assert refused and all("512" in what for what in refused)
    equal_length, *_ = CLAIMS
    assert worst(equal_length.findings(equal)) == NOT_HERE != worst(equal_length.findings(partly))


def test_claims_without_models_are_not_run():
    assert {worst(claim.findings(Results({}))) for claim in CLAIMS} == {NOT_RUN}
