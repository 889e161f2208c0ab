"""The claims that a study tries, as comparisons of its finished cells with the range each must lie in.

Numbers are changes of perplexity, or of speed, with 95 % intervals.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ...results.points import method_name
from .description import Key
from .outcomes import Interval, Outcome, Speeds, Sums, change, speed_up

HOLDS, SO_FAR, FAILS = "reproduced", "reproduced so far", "not reproduced"
OPEN, NOT_RUN = "cannot be told at this scale", "not run yet"
#: The length from which on the paper has ALiBi ahead of sinusoidal at equal lengths (Table 5).
AHEAD_FROM = 256
#: Methods that do not extrapolate.
BREAKING = ("sinusoidal", "rotary", "t5")
#: Methods that the paper measured to train more slowly than sinusoidal.
SLOWER = ("rotary", "t5")
#: Two speeds that differ by less are level: in the paper's Table 1 ALiBi and sinusoidal do so by 1 %.
LEVEL = 0.05


@dataclass(frozen=True)
class Finding:
    """One comparison.

    Attributes:
        what: the comparison in words, the same for all seeds.
        number: the change of perplexity or speed; None for what has no interval.
        agrees: with the claim: True, False, or None if the interval includes both.
        counts: for the verdict; otherwise it is shown only.
        seed: of the models compared.
    """

    what: str
    number: Interval | None
    agrees: bool | None
    counts: bool = True
    seed: int = 1


@dataclass(frozen=True)
class Range:
    """The changes with which a claim agrees.

    Attributes:
        doubt: the verdict where the interval includes other changes as well.
    """

    low: float = -math.inf
    high: float = math.inf
    doubt: bool | None = None

    def agrees(self, found: Interval) -> bool | None:
        if found.low > self.low and found.high < self.high:
            return True
        return False if found.high < self.low or found.low > self.high else self.doubt


LOWER, HIGHER, NOT_HIGHER = Range(high=0), Range(low=0), Range(high=0, doubt=True)
NO_SLOWER, NO_CLAIM = Range(low=-LEVEL), Range(math.nan, math.nan)


class Results:
    """Finished cells, and speeds of training (:func:`.outcomes.load_speeds`)."""

    def __init__(self, outcomes: dict[Key, Outcome], speeds: Speeds | None = None):
        self.outcomes = outcomes
        self.speeds = speeds or {}

    def of(self, method: str, corpus: str | None = None) -> list[Outcome]:
        """Finished cells of a method, by corpus, seed and length."""
        found = [
            outcome
            for key, outcome in self.outcomes.items()
            if key.method == method and corpus in (None, key.corpus)
        ]
        return sorted(found, key=lambda o: (o.key.corpus, o.key.seed, o.key.train_length))

    def other(self, outcome: Outcome, method: str) -> Outcome | None:
        """The cell of another method with the same corpus, training length and seed."""
        key = outcome.key
        return self.outcomes.get(Key(key.corpus, method, key.train_length, key.seed))

    def pairs(
        self, method: str, other: str, corpus: str | None = None
    ) -> Iterator[tuple[Outcome, Outcome]]:
        for outcome in self.of(method, corpus):
            if found := self.other(outcome, other):
                yield outcome, found


def compared(
    outcome: Outcome,
    what: str,
    one: Sums | None,
    other: Sums | None,
    expected: Range,
    counts: bool = True,
) -> Iterator[Finding]:
    """One comparison of perplexities about a cell; none if one of the two was not evaluated."""
    if one is not None and other is not None:
        found = change(one, other)
        agrees = expected.agrees(found)
        yield Finding(label(outcome) + what, found, agrees, counts, outcome.key.seed)


def label(outcome: Outcome) -> str:
    """``ALiBi trained at 64 (wikipedia)``."""
    key = outcome.key
    return f"{method_name(key.method)} trained at {key.train_length} ({key.corpus})"


def equal_length(results: Results, corpus: str | None = None) -> Iterator[Finding]:
    for alibi, other in results.pairs("alibi", "sinusoidal", corpus):
        n = alibi.key.train_length
        what = f" against sinusoidal, both trained and tested at {n}"
        yield from compared(
            alibi, what, alibi.find(n), other.find(n), NOT_HIGHER, counts=n >= AHEAD_FROM
        )


def extrapolation(results: Results) -> Iterator[Finding]:
    yield from alibi_extrapolates(results)
    for method in BREAKING:  # each is worse at 4 times its training length than at it
        for outcome in results.of(method):
            n = outcome.key.train_length
            for m in outcome.lengths():
                if m > n:
                    what = f" tested at {m} against {n}"
                    one, other = outcome.find(m), outcome.find(n)
                    yield from compared(outcome, what, one, other, HIGHER, counts=m == 4 * n)


def alibi_extrapolates(results: Results, corpus: str | None = None) -> Iterator[Finding]:
    for alibi in results.of("alibi", corpus):
        n = alibi.key.train_length
        for times, expected in ((2, LOWER), (16, NOT_HIGHER)):
            what = f" tested at {times * n} against {n}"
            yield from compared(alibi, what, alibi.find(times * n), alibi.find(n), expected)


def short_beats_long(results: Results) -> Iterator[Finding]:
    for short in results.of("alibi"):
        for long in results.of("sinusoidal", short.key.corpus):
            n = long.key.train_length
            if long.key.seed == short.key.seed and n > short.key.train_length:
                what = f" against sinusoidal trained at {n}, both tested at {n}"
                yield from compared(short, what, short.find(n), long.find(n), LOWER)
    for shorter, longer in itertools.product(sorted(results.speeds), repeat=2):
        (corpus, method, n), (other_corpus, other, m) = shorter, longer
        if (method, other, corpus) == ("alibi", "sinusoidal", other_corpus) and n < m:
            found = speed_up(results.speeds[shorter], results.speeds[longer])
            what = f"speed of training ALiBi at {n} ({corpus}) against sinusoidal at {m}"
            yield Finding(what, found, HIGHER.agrees(found))


def speed_and_memory(results: Results) -> Iterator[Finding]:
    for (corpus, method, length), timed in sorted(results.speeds.items()):
        baseline = results.speeds.get((corpus, "sinusoidal", length))
        if method == "sinusoidal" or baseline is None:
            continue
        found = speed_up(timed, baseline)
        expected = LOWER if method in SLOWER else NO_SLOWER
        what = f"speed of training {method_name(method)} at {length} ({corpus}) against sinusoidal"
        counts = method in ("alibi", *SLOWER)
        yield Finding(what, found, expected.agrees(found), counts)
    for outcome in results.outcomes.values():
        other = results.other(outcome, "sinusoidal")
        if other is None or other is outcome or outcome.key.seed != 1:
            continue
        if outcome.peak_memory_mb and other.peak_memory_mb:
            ratio = outcome.peak_memory_mb / other.peak_memory_mb
            what = f"{label(outcome)}: {ratio:.2f} times the peak memory of sinusoidal"
            yield Finding(what, None, None, counts=False)


def early_tokens(results: Results) -> Iterator[Finding]:
    """S = 1 changes by less than half of the gain of windows that do not overlap."""
    for alibi in results.of("alibi"):
        n = alibi.key.train_length
        for m in sorted(a for a, stride, changed in alibi.sums if stride == 1 and not changed)[1:]:
            gain, flat = (alibi.find(m), alibi.find(n)), (alibi.find(m, 1), alibi.find(n, 1))
            what = f" at {m} against {n}"
            for whole in compared(alibi, f"{what}, without overlap", *gain, NO_CLAIM, counts=False):
                assert whole.number is not None
                bound = abs(whole.number.value) / 2
                yield whole
                yield from compared(alibi, f"{what}, S = 1", *flat, Range(-bound, bound))


def other_domain(results: Results) -> Iterator[Finding]:
    yield from equal_length(results, "books")
    yield from alibi_extrapolates(results, "books")


def long_tests_lose(results: Results) -> Iterator[Finding]:
    for alibi in results.of("alibi"):
        *shorter, longest = alibi.lengths()
        if shorter:
            best = min(shorter, key=lambda length: alibi.at(length).loss)
            what = f" tested at {longest} against {best}, the best of the shorter ones"
            yield from compared(alibi, what, alibi.at(longest), alibi.at(best), HIGHER)


def kerple_ahead(results: Results) -> Iterator[Finding]:
    for kerple, alibi in results.pairs("kerple", "alibi"):
        m = 4 * kerple.key.train_length
        what = f" against ALiBi, both tested at {m}"
        yield from compared(kerple, what, kerple.find(m), alibi.find(m), LOWER)


def interpolation_helps(results: Results) -> Iterator[Finding]:
    for alibi in results.of("alibi"):
        m = 2 * alibi.key.train_length
        what = f", interpolated against not, tested at {m}"
        yield from compared(alibi, what, alibi.find(m, variant=True), alibi.find(m), LOWER)


def without_positions(results: Results) -> Iterator[Finding]:
    for none in results.of("none"):
        n = none.key.train_length
        for method in ("alibi", "sinusoidal"):
            if other := results.other(none, method):
                what = f" against {method_name(method)}, both tested at {n}"
                yield from compared(none, what, none.find(n), other.find(n), NO_CLAIM)


@dataclass(frozen=True)
class Claim:
    """A claim.

    Attributes:
        paper: where it stands.
        finding: yields the findings about it.
        needs: methods without which it is reproduced "so far" only.
        corpus: the one that they must be trained on.
        note: what to know about the findings.
    """

    title: str
    paper: str
    finding: Callable[[Results], Iterator[Finding]]
    needs: tuple[str, ...] = ()
    corpus: str | None = None
    note: str = ""


CLAIMS = (
    Claim(
        "At equal length ALiBi matches or beats sinusoidal",
        "From L = 256 on; at 64 and 128 it is behind (Table 5).",
        equal_length,
    ),
    Claim(
        "ALiBi gains from windows up to twice its training length and holds to 16 times; the others "
        "break",
        "Sinusoidal within 50 tokens, rotary within a few hundred, T5 bias at 2 to 3 times L (Tables "
        "2-4).",
        extrapolation,
        needs=("alibi", *BREAKING),
    ),
    Claim(
        "ALiBi trained short and tested long beats sinusoidal trained long",
        "At equal tokens, and in less time (section 4.1, Table 5).",
        short_beats_long,
    ),
    Claim(
        "Order of the methods in training speed and memory",
        "Sinusoidal and ALiBi are level, rotary is slower, T5 bias takes about twice the time (Table "
        "1, on a GPU).",
        speed_and_memory,
        note="The order counts, not how far the paper's GPU had the methods apart. Updates of all "
        "models were timed in turns on one machine. Memory is all that a training process held.",
    ),
    Claim(
        "The gain from longer tests is mostly the early-token curse",
        "With windows that slide by one token perplexity is flat (Tables 13-15).",
        early_tokens,
    ),
    Claim(
        "The same slopes serve another domain",
        "ALiBi is ahead of sinusoidal on books as well, and extrapolates (Table 8).",
        other_domain,
        needs=("alibi", "sinusoidal"),
        corpus="books",
    ),
    Claim(
        "Long tests lose again",
        "At 1.3B parameters perplexity is best near twice L and gets worse than at L (Figure 6).",
        long_tests_lose,
    ),
    Claim(
        "KERPLE is ahead of ALiBi past the training length",
        "Chi et al. 2022.",
        kerple_ahead,
        note="One seed says little about differences as small as these.",
    ),
    Claim(
        "Interpolation helps ALiBi at twice the training length",
        "Al-Khateeb et al. 2023, with models of billions of parameters.",
        interpolation_helps,
    ),
    Claim(
        "No positions at all are close behind",
        "Later papers; how close is not said, so there is no verdict.",
        without_positions,
    ),
)


@dataclass(frozen=True)
class Tried:
    """A claim with its number, its findings, and methods it speaks of that are not trained yet."""

    claim: Claim
    title: str
    findings: list[Finding]
    missing: list[str]

    @property
    def verdict(self) -> str:
        """By comparison, where it counts; None where seeds contradict each other.

        Intervals over documents do not cover the seed, so a small difference may be beyond doubt
        with each of two seeds, and have the opposite sign.
        """
        of_seeds: dict[str, set[bool | None]] = {}
        for finding in self.findings:
            if finding.counts:
                of_seeds.setdefault(finding.what, set()).add(finding.agrees)
        counted = [
            None
            if {True, False} <= found
            else False
            if False in found
            else None not in found or None
            for found in of_seeds.values()
        ]
        if not counted:
            return NOT_RUN
        if False in counted:
            return FAILS
        if None in counted:
            return OPEN
        return SO_FAR if self.missing else HOLDS


def claims(outcomes: dict[Key, Outcome], speeds: Speeds | None = None) -> list[Tried]:
    """All claims, in their order."""
    results = Results(outcomes, speeds)
    return [
        Tried(
            claim,
            f"{number}. {claim.title}",
            list(claim.finding(results)),
            [method_name(name) for name in claim.needs if not results.of(name, claim.corpus)],
        )
        for number, claim in enumerate(CLAIMS, 1)
    ]
