"""Verdicts on claims: each needs its effect, of the right sign, and more than a single seed."""

import math

import numpy as np
import pytest

from alibi_fairseq.experiments.study.bootstrap import Interval, Losses
from alibi_fairseq.experiments.study.claims import (
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
)

BY_TITLE = {claim.title: claim for claim in CLAIMS}


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
    finding = Finding("", Interval(value, low, high), paper, direction, (3, 3))
    assert finding.verdict == verdict


def test_single_seed_decides_nothing():
    assert Finding("", Interval(-0.03, -0.04, -0.02), -0.02, -1, (3, 1)).verdict == OPEN


def test_numbers_of_the_paper():
    assert papers("table05", ("alibi", 512, 512), ("sinusoidal", 512, 512)) == 19.73 / 20.05 - 1
    assert papers("table15", ("alibi", 512, 1024), ("alibi", 512, 512), S=1) == 17.92 / 17.98 - 1
    assert math.isnan(papers("table05", ("t5", 64, 64), ("alibi", 64, 64)))


def results(loss, seeds=3, speeds=None):
    """Evaluations of all methods with losses in bits by method, L and length, and little chance."""
    random, found = np.random.default_rng(0), {}
    tokens = np.full(20, 100)
    documents = random.normal(6, 1, 20)
    for corpus in ("wikipedia", "books"):
        for method in ("alibi", "sinusoidal", "rotary", "t5", "none", "kerple", "fox"):
            for train_length in (128, 512):
                for length in (128, 256, 512, 1024, 2048):
                    for stride, variant in (
                        *((length, ""), (16, ""), (length // 4, "")),
                        *((length, "limited"), (length, "interpolated")),
                    ):
                        key = Evaluation(
                            corpus, method, train_length, corpus, length, stride, variant
                        )
                        of_seed = random.normal(0, 1e-5, seeds)
                        bits = loss(key) + np.add.outer(of_seed, documents)
                        model = (corpus, method, train_length)
                        found[key] = Losses(model, tuple(range(seeds)), bits * tokens, tokens)
    return Results(found, speeds)


def as_the_paper(key):
    """About the paper's changes, in bits."""
    times = math.log2(key.length / key.train_length) if key.length >= key.train_length else 0
    loss = -0.15 * math.log2(key.train_length / 128)  # longer training lengths are better
    if key.stride < 64:  # no early-token curse
        return loss + (0.02 * (times > 1))
    if key.method == "alibi":
        gain = {0: 0, 1: -0.1, 2: -0.12, 3: -0.13, 4: -0.13}[int(times)]
        return loss + (0.01 if key.train_length == 128 else -0.025) + gain
    if key.method == "none":
        return loss + 0.1
    if key.train_length == 128:  # the paper has no such models
        loss += {"rotary": 0.05, "t5": 0.05}.get(key.method, 0)
    elif key.method == "t5":
        loss -= 0.03
    lost = {"sinusoidal": (0, 1.1, 2.7), "rotary": (0, 0.1, 0.65), "t5": (0, -0.06, 0.055)}
    return loss + lost.get(key.method, (0, 0, 0))[min(2, int(times))]


def test_the_papers_own_changes_are_never_contradicted():
    found = results(as_the_paper)
    for claim in CLAIMS:
        assert claim.verdict(found) != CONTRADICTED or claim.later, claim.title
    for title in (
        "ALiBi gains from windows longer than its training length",
        "Sinusoidal, rotary and T5 bias break",
        "The order in which they break",
        "Training on longer sequences gives lower perplexity",
    ):
        assert BY_TITLE[title].verdict(found) in (SIZE, DIRECTION), title


def test_no_claim_survives_the_opposite():
    """Every loss mirrored: no comparison with a direction may agree."""
    found = results(lambda key: -as_the_paper(key) - (key.method == "none"))
    for claim in CLAIMS:
        for finding in claim.findings(found):
            if finding.direction and abs(finding.number.value) > 0.006:
                mirrored = next(
                    each
                    for each in claim.findings(results(as_the_paper))
                    if each.what == finding.what
                )
                agreed = {SIZE, DIRECTION}
                assert not (finding.verdict in agreed and mirrored.verdict in agreed), finding.what


def test_claims_about_sinusoidal_need_a_baseline_that_has_learned_positions():
    found = results(lambda key: as_the_paper(key) - 0.1 * (key.method == "none"))
    for claim in CLAIMS:
        assert not claim.positions or claim.verdict(found) == NOT_HERE


def test_claims_without_models_are_not_run():
    assert {claim.verdict(Results({})) for claim in CLAIMS} == {NOT_RUN}
