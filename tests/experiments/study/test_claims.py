"""Verdicts on made-up outcomes, in which it is known what is true."""

from __future__ import annotations

import numpy as np
import pytest

from alibi_fairseq.experiments.study.claims import FAILS, HOLDS, NOT_RUN, OPEN, SO_FAR, claims
from alibi_fairseq.experiments.study.description import Key
from alibi_fairseq.experiments.study.outcomes import Outcome, Sums
from alibi_fairseq.experiments.study.page import failed_first, summary

TOKENS = np.full(20, 1000)
#: Bits per token of each document.
TEXT = np.random.default_rng(1).normal(7, 0.5, size=20)


def sums(shift: float, noise: float = 0.002, seed: int = 0) -> Sums:
    """A model whose loss is that of the text and so many bits more."""
    own = np.random.default_rng(seed).normal(0, noise, size=20)
    return Sums((TEXT + shift + own) * TOKENS, TOKENS)


def outcome(
    method: str, shifts: dict, train_length: int = 256, corpus="wikipedia", noise=0.002, seed=1
):
    """Shifts by length, or by (length, stride, variant)."""
    key = Key(corpus, method, train_length, seed)
    found = {
        case if isinstance(case, tuple) else (case, case, False): sums(shift, noise, number)
        for number, (case, shift) in enumerate(shifts.items())
    }
    return Outcome(key, "text-study", found, {}, 1000.0, 500.0, 0.1, 300, "abc")


def speeds(**of_method: float) -> dict:
    """Of nine rounds in which the machine becomes slower, with some noise of each model's own."""
    noise = np.random.default_rng(2)
    machine = np.linspace(1000, 400, 9)
    return {
        ("wikipedia", method, 256): machine * speed * noise.uniform(0.99, 1.01, 9)
        for method, speed in of_method.items()
    }


def verdicts(*outcomes: Outcome, timed: dict | None = None) -> dict[str, str]:
    found = claims({each.key: each for each in outcomes}, timed)
    return {claim.title.split(".")[0]: claim.verdict for claim in found}


ALIBI = {256: 0.0, 512: -0.1, 1024: -0.12, 4096: -0.12, 8192: -0.3}
SINUSOIDAL = {256: 0.05, 306: 0.1, 512: 0.4, 1024: 1.0, 4096: 2.0}


def test_everything_as_in_the_paper():
    short = {
        **{64: 0.2, 128: 0.1, 256: 0.0, 1024: 0.0, 2048: -0.1},
        (64, 1, False): -0.1,
        (128, 1, False): -0.1,
        (256, 1, False): -0.102,
        (128, 128, True): 0.05,
        (512, 512, True): -0.2,
    }
    found = verdicts(
        outcome("alibi", ALIBI),
        outcome("sinusoidal", SINUSOIDAL),
        outcome("alibi", short, 64),
        outcome("rotary", {256: 0.0, 512: 0.1, 1024: 0.5}),
        outcome("t5", {256: 0.0, 512: -0.1, 1024: 0.3}),
        outcome("kerple", {256: 0.0, 1024: -0.2}),
        outcome("alibi", ALIBI, corpus="books"),
        outcome("sinusoidal", SINUSOIDAL, corpus="books"),
        timed=speeds(sinusoidal=1, alibi=0.99, rotary=0.7, t5=0.5, kerple=0.4),
    )
    # Long tests lose nothing here: every model is best at its longest test.
    expected = dict.fromkeys("12345689", HOLDS) | {"7": FAILS, "10": NOT_RUN}
    assert found == expected


@pytest.mark.parametrize(
    ("changes", "claim", "verdict"),
    [
        ({256: 0.3}, "1", FAILS),
        ({512: 0.1}, "2", FAILS),
        ({4096: 0.2}, "2", FAILS),
    ],
)
def test_what_contradicts_a_claim_fails_it(changes, claim, verdict):
    found = verdicts(outcome("alibi", ALIBI | changes), outcome("sinusoidal", SINUSOIDAL))
    assert found[claim] == verdict


def test_a_claim_on_methods_that_were_not_trained_holds_so_far():
    assert verdicts(outcome("alibi", ALIBI), outcome("sinusoidal", SINUSOIDAL))["2"] == SO_FAR


def test_noise_decides_nothing():
    noisy = outcome("alibi", {256: 0.0, 512: 0.0}, noise=0.5)
    assert verdicts(noisy)["2"] == OPEN


def test_what_was_not_trained_is_not_run_yet():
    assert set(verdicts().values()) == {NOT_RUN}
    assert verdicts(outcome("alibi", ALIBI))["1"] == NOT_RUN


def test_equal_lengths_below_256_are_shown_and_do_not_count():
    pair = [outcome("alibi", {64: 0.1}, 64), outcome("sinusoidal", {64: 0.0}, 64)]
    first, *_ = claims({each.key: each for each in pair})
    assert first.verdict == NOT_RUN
    (finding,) = first.findings
    assert finding.number.low > 0 and finding.agrees is False and not finding.counts


def test_the_early_token_claim_fails_where_sliding_windows_gain_as_much():
    gains = {64: 0.2, 128: 0.0, (64, 1, False): 0.1, (128, 1, False): -0.1}
    assert verdicts(outcome("alibi", gains, 64))["5"] == FAILS


@pytest.mark.parametrize(
    ("timed", "verdict"),
    [
        (speeds(sinusoidal=1, alibi=0.9), FAILS),
        (speeds(sinusoidal=1, alibi=1.3), HOLDS),
        (speeds(sinusoidal=1, alibi=0.95), OPEN),
        (speeds(sinusoidal=1, alibi=1, rotary=1.1), FAILS),
        (speeds(sinusoidal=1, alibi=1, t5=1), OPEN),
        (speeds(alibi=1), NOT_RUN),
    ],
)
def test_the_order_of_speeds(timed, verdict):
    assert verdicts(timed=timed)["4"] == verdict


@pytest.mark.parametrize(("speed", "verdict"), [(1.1, HOLDS), (0.9, FAILS)])
def test_trained_short_must_take_no_longer_than_trained_long(speed, verdict):
    pair = [outcome("alibi", {64: 0.2, 256: 0.0}, 64), outcome("sinusoidal", SINUSOIDAL)]
    timed = speeds(sinusoidal=1)
    timed["wikipedia", "alibi", 64] = speed * timed["wikipedia", "sinusoidal", 256]
    assert verdicts(*pair, timed=timed)["3"] == verdict


@pytest.mark.parametrize(
    ("of_seeds", "verdict"),
    [((-0.1, -0.2), HOLDS), ((-0.1, 0.1), OPEN), ((0.1, 0.2), FAILS), ((0.1, None), FAILS)],
)
def test_seeds_that_contradict_each_other_decide_nothing(of_seeds, verdict):
    """``None``: a seed whose difference is within the noise."""
    cells = []
    for seed, shift in enumerate(of_seeds, start=1):
        noise = {"noise": 0.5} if shift is None else {}
        cells.append(outcome("alibi", {1024: 0.0}, seed=seed, **noise))
        cells.append(outcome("kerple", {1024: shift or 0.0}, seed=seed))
    assert verdicts(*cells)["8"] == verdict


def test_failed_claims_come_first():
    found = claims(
        {
            each.key: each
            for each in (outcome("alibi", ALIBI | {256: 0.3}), outcome("sinusoidal", SINUSOIDAL))
        }
    )
    lines = summary(found).splitlines()[2:]
    assert [claim.verdict for claim in failed_first(found)][:2] == [FAILS, FAILS]
    assert lines[0].startswith("| 1. At equal length") and "| 7. Long tests" in lines[1]
    assert NOT_RUN in lines[-1]
