"""What the finished cells of a study say: comparisons, claim by claim.

Numbers are changes of perplexity, or of speed, in per cent, with 95 % intervals. Where an interval
includes 0, nothing is claimed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from ...results.points import method_name
from .description import Key
from .outcomes import Outcome, Speeds
from .statistics import Interval, Sums, change, speed_up

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


class Results:
    """Finished cells with what claims ask for.

    Args:
        speeds: of training.
    """

    def __init__(
        self,
        outcomes: dict[Key, Outcome],
        speeds: Speeds | None = None,
    ):
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

    def missing(self, *methods: str, corpus: str | None = None) -> tuple[str, ...]:
        """Names of those of the methods that have no finished cell."""
        return tuple(method_name(method) for method in methods if not self.of(method, corpus))

    def beside(self, outcome: Outcome, method: str, train_length: int | None = None):
        """The cell of another method or length, with the same corpus and seed; None if not run."""
        key = outcome.key
        wanted = Key(key.corpus, method, train_length or key.train_length, key.seed)
        return self.outcomes.get(wanted)


def equal_length(results: Results, corpus: str | None = None) -> Iterator[Finding]:
    for alibi in results.of("alibi", corpus):
        if other := results.beside(alibi, "sinusoidal"):
            length = alibi.key.train_length
            found = compared(alibi.find(length), other.find(length))
            agrees = None if found is None else not found.positive
            what = f"{label(alibi)} against sinusoidal, both trained and tested at {length}"
            yield Finding(what, found, agrees, counts=length >= AHEAD_FROM, seed=alibi.key.seed)


def alibi_extrapolates(results: Results, corpus: str | None = None) -> Iterator[Finding]:
    for alibi in results.of("alibi", corpus):
        length = alibi.key.train_length
        at = alibi.find(length)
        if found := compared(alibi.find(2 * length), at):
            what = f"{label(alibi)} tested at {2 * length} against {length}"
            yield Finding(what, found, decided(found, lower=True), seed=alibi.key.seed)
        if found := compared(alibi.find(16 * length), at):
            what = f"{label(alibi)} tested at {16 * length} against {length}"
            yield Finding(what, found, not found.positive, seed=alibi.key.seed)


def others_break(results: Results) -> Iterator[Finding]:
    """Each is worse at 4 times its training length than at it."""
    for method in BREAKING:
        for outcome in results.of(method):
            length = outcome.key.train_length
            at = outcome.find(length)
            for tested in outcome.lengths():
                if tested > length and (found := compared(outcome.find(tested), at)):
                    counts = tested == 4 * length
                    what = f"{label(outcome)} tested at {tested} against {length}"
                    yield Finding(
                        what, found, decided(found, lower=False), counts, seed=outcome.key.seed
                    )


def short_beats_long(results: Results) -> Iterator[Finding]:
    for short in results.of("alibi"):
        for long in results.of("sinusoidal", short.key.corpus):
            length = long.key.train_length
            if long.key.seed != short.key.seed or length <= short.key.train_length:
                continue
            if found := compared(short.find(length), long.find(length)):
                what = f"{label(short)} against sinusoidal trained at {length}, both tested at {length}"
                yield Finding(what, found, decided(found, lower=True), seed=short.key.seed)


def short_is_faster(results: Results) -> Iterator[Finding]:
    """As many tokens in less time."""
    for short, long in itertools.product(sorted(results.speeds), repeat=2):
        (corpus, method, length), (other_corpus, other, other_length) = short, long
        if (method, other) != ("alibi", "sinusoidal") or corpus != other_corpus:
            continue
        if length < other_length:
            found = speed_up(results.speeds[short], results.speeds[long])
            what = f"speed of training ALiBi at {length} ({corpus}) against sinusoidal at {other_length}"
            yield Finding(what, found, decided(found, lower=False))


def speeds(results: Results) -> Iterator[Finding]:
    for (corpus, method, length), timed in sorted(results.speeds.items()):
        baseline = results.speeds.get((corpus, "sinusoidal", length))
        if method == "sinusoidal" or baseline is None:
            continue
        found = speed_up(timed, baseline)
        agrees = decided(found, lower=True) if method in SLOWER else no_slower(found)
        what = f"speed of training {method_name(method)} at {length} ({corpus}) against sinusoidal"
        yield Finding(what, found, agrees, counts=method in ("alibi", *SLOWER))


def memory(results: Results) -> Iterator[Finding]:
    for outcome in results.outcomes.values():
        other = results.beside(outcome, "sinusoidal")
        if other is None or other is outcome or outcome.key.seed != 1:
            continue
        if outcome.peak_memory_mb and other.peak_memory_mb:
            ratio = outcome.peak_memory_mb / other.peak_memory_mb
            what = f"{label(outcome)}: {ratio:.2f} times the peak memory of sinusoidal"
            yield Finding(what, None, None, counts=False, seed=outcome.key.seed)


def early_tokens(results: Results) -> Iterator[Finding]:
    """S = 1 changes by less than half of what windows that do not overlap gain."""
    for alibi in results.of("alibi"):
        length = alibi.key.train_length
        sliding = sorted(a for a, stride, changed in alibi.sums if stride == 1 and not changed)
        for tested in sliding[1:]:
            gain = compared(alibi.find(tested), alibi.find(length))
            flat = compared(alibi.find(tested, 1), alibi.find(length, 1))
            if gain is None or flat is None:
                continue
            what = f"{label(alibi)} at {tested} against {length}, without overlap"
            yield Finding(what, gain, None, counts=False, seed=alibi.key.seed)
            # Within half of the gain: flat, as far as the interval can tell.
            bound = abs(gain.value) / 2
            inside = flat.low > -bound and flat.high < bound
            outside = flat.high < -bound or flat.low > bound
            agrees = True if inside else False if outside else None
            yield Finding(
                f"{label(alibi)} at {tested} against {length}, S = 1",
                flat,
                agrees,
                seed=alibi.key.seed,
            )


def other_domain(results: Results) -> Iterator[Finding]:
    yield from equal_length(results, "books")
    yield from alibi_extrapolates(results, "books")


def long_tests_lose(results: Results) -> Iterator[Finding]:
    for alibi in results.of("alibi"):
        *shorter, longest = alibi.lengths()
        if shorter:
            best = min(shorter, key=lambda length: alibi.at(length).loss)
            found = change(alibi.at(longest), alibi.at(best))
            what = (
                f"{label(alibi)} tested at {longest} against {best}, the best of the shorter ones"
            )
            yield Finding(what, found, decided(found, lower=False), seed=alibi.key.seed)


def kerple_ahead(results: Results) -> Iterator[Finding]:
    for kerple in results.of("kerple"):
        length = kerple.key.train_length
        alibi = results.beside(kerple, "alibi")
        found = alibi and compared(kerple.find(4 * length), alibi.find(4 * length))
        if found:
            what = f"{label(kerple)} against ALiBi, both tested at {4 * length}"
            yield Finding(what, found, decided(found, lower=True), seed=kerple.key.seed)


def interpolation_helps(results: Results) -> Iterator[Finding]:
    for alibi in results.of("alibi"):
        twice = 2 * alibi.key.train_length
        if found := compared(alibi.find(twice, variant=True), alibi.find(twice)):
            what = f"{label(alibi)}, interpolated against not, tested at {twice}"
            yield Finding(what, found, decided(found, lower=True), seed=alibi.key.seed)


def without_positions(results: Results) -> Iterator[Finding]:
    for none in results.of("none"):
        length = none.key.train_length
        for other in ("alibi", "sinusoidal"):
            if beside := results.beside(none, other):
                found = compared(none.find(length), beside.find(length))
                what = f"{label(none)} against {method_name(other)}, both tested at {length}"
                yield Finding(what, found, None, seed=none.key.seed)


def compared(one: Sums | None, other: Sums | None) -> Interval | None:
    """The change of perplexity; None if one of them was not evaluated."""
    return None if one is None or other is None else change(one, other)


def decided(found: Interval, lower: bool) -> bool | None:
    """Whether a change is in the claimed direction; None if its interval includes 0."""
    if found.negative or found.positive:
        return found.negative if lower else found.positive
    return None


def no_slower(found: Interval) -> bool | None:
    """Whether a speed is at least level; None if its interval includes both."""
    if found.low > -LEVEL:
        return True
    return False if found.high < -LEVEL else None


def label(outcome: Outcome) -> str:
    """``ALiBi trained at 64 (wikipedia)``."""
    key = outcome.key
    return f"{method_name(key.method)} trained at {key.train_length} ({key.corpus})"
