"""The claims that a study tests: what is compared, what the paper measured, and the rule of the verdict.

The rules are those of docs/experiments.md, fixed before the models were trained. Numbers are changes
of perplexity (or of speed, where it says so) with 95 % intervals, see :mod:`.bootstrap`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from ...paper import published
from ...results.points import method_name
from .bootstrap import Interval, Losses, change, speed_up

#: The smallest change that counts; smaller ones are level.
COUNTS = 0.005
#: Likewise of speeds: the paper's differ by up to 4.5 % (Table 1).
SPEED_COUNTS = 0.05
#: By how much sinusoidal must beat no positions at all, or it has not learned positions.
LEARNED = 0.02
SIZE, DIRECTION, CONTRADICTED = "same direction and size", "same direction", "contradicted"
OPEN, NOT_HERE, NOT_RUN = "cannot be told", "does not apply at this scale", "not run yet"
#: The methods of the paper's Figure 1, in the order in which they break.
BREAKING = ("sinusoidal", "rotary", "t5", "alibi")


@dataclass(frozen=True)
class Evaluation:
    """What was evaluated on what, all seeds together.

    Attributes:
        corpus: that the models were trained on.
        tested_on: the corpus of the documents.
        length, stride: of the windows, in tokens.
        variant: the name of the options that were overridden; empty: as trained.
    """

    corpus: str
    method: str
    train_length: int
    tested_on: str
    length: int
    stride: int
    variant: str = ""


class Results:
    """The finished evaluations of a study, and speeds.

    Args:
        losses: of each evaluation.
        speeds: seconds of the rounds by (phase, method, length); phases are ``train`` and ``evaluate``.
    """

    def __init__(
        self,
        losses: Mapping[Evaluation, Losses],
        speeds: Mapping[tuple[str, str, int], list[float]] | None = None,
    ):
        self.losses = losses
        self.speeds = speeds or {}
        self.main = next(iter(losses)).corpus if losses else ""
        self.others = [each for each in self.corpora if each != self.main]

    @property
    def corpora(self) -> list[str]:
        return list(dict.fromkeys(each.corpus for each in self.losses))

    def lengths(self, method: str, corpus: str) -> list[int]:
        """Training lengths of a method."""
        models = (each for each in self.losses if (each.method, each.corpus) == (method, corpus))
        return sorted({each.train_length for each in models})

    def at(
        self,
        method: str,
        train_length: int,
        length: int,
        stride: int | None = None,
        variant: str = "",
        corpus: str = "",
        tested_on: str = "",
    ) -> Losses | None:
        """An evaluation (default: the main corpus, non-overlapping windows); None if there is none."""
        corpus = corpus or self.main
        case = (method, train_length, tested_on or corpus, length, stride or length, variant)
        return self.losses.get(Evaluation(corpus, *case))


@dataclass(frozen=True)
class Finding:
    """One comparison.

    Attributes:
        what: the comparison in words.
        number: the change.
        paper: the change that the paper measured, and that the claim is about; NaN: none.
        direction: −1: lower, 1: higher, 0: level.
        seeds: number on each side; a side with a single seed decides nothing.
        level: changes up to this are none.
    """

    what: str
    number: Interval
    paper: float
    direction: int | None
    seeds: tuple[int, int] = (0, 0)
    level: float = COUNTS

    @property
    def verdict(self) -> str:
        """By the rule of docs/experiments.md; empty if it is only shown."""
        if self.direction is None:
            return ""
        found = self.number
        if min(self.seeds) == 1:
            return OPEN
        if self.direction == 0:
            if found.within(-self.level, self.level):
                return SIZE
            return CONTRADICTED if found.low > self.level or found.high < -self.level else OPEN
        low, high = (COUNTS, math.inf) if self.direction > 0 else (-math.inf, -COUNTS)
        if found.within(low, high):
            same = abs(math.log1p(found.value) / math.log1p(self.paper)) if self.paper else math.nan
            return SIZE if 0.5 <= same <= 2 else DIRECTION
        return CONTRADICTED if found.high < low or found.low > high else OPEN


Findings = Iterator[Finding]


def compared(
    what: str, one: Losses | None, other: Losses | None, paper: float, direction: int | None = None
) -> Findings:
    """One comparison of perplexities, if both are there; the direction is by default the paper's."""
    if one is None or other is None:
        return
    if direction is None and not math.isnan(paper):
        direction = 0 if abs(paper) < COUNTS else int(math.copysign(1, paper))
    seeds = (len(one.seeds), len(other.seeds))
    yield Finding(what, change(one, other), paper, direction, seeds)


def papers(item: str, one: tuple[str, int, int], other: tuple[str, int, int], S: int = 0) -> float:
    """The change between two (method, L, tested at) in a table of the paper; NaN if it lacks one.

    Args:
        S: the stride of both (default: non-overlapping windows).
    """
    found = {
        (point.position_method, point.train_length, point.length): point.perplexity
        for point in published.points(item)
        if point.stride == (S or point.length) and point.subset == "valid"
    }
    if not (found.get(one) and found.get(other)):
        return math.nan
    return found[one] / found[other] - 1


def equal_length(results: Results) -> Findings:
    for n in results.lengths("alibi", results.main):
        what = f"ALiBi against sinusoidal, trained and tested at {n}"
        paper = papers("table05", ("alibi", n, n), ("sinusoidal", n, n))
        yield from compared(what, results.at("alibi", n, n), results.at("sinusoidal", n, n), paper)


def against_relative(results: Results) -> Findings:
    for n in results.lengths("alibi", results.main):
        for method in ("rotary", "t5"):
            what = f"ALiBi against {method_name(method)}, trained and tested at {n}"
            paper = papers("table05", ("alibi", n, n), (method, n, n))
            one, other = results.at("alibi", n, n), results.at(method, n, n)
            # At lengths that the paper did not train them at, it claims to be ahead (section 1).
            yield from compared(what, one, other, paper, -1 if math.isnan(paper) else None)


def gains(results: Results, corpus: str = "", item: str = "table05") -> Findings:
    for n in results.lengths("alibi", corpus or results.main):
        for times in (2, 4, 16):
            one, other = (results.at("alibi", n, m, corpus=corpus) for m in (times * n, n))
            paper = papers(item, ("alibi", n, times * n), ("alibi", n, n))
            where = f" ({corpus})" if corpus else ""
            what = f"ALiBi trained at {n}, tested at {times * n} against {n}{where}"
            yield from compared(what, one, other, paper, -1 if math.isnan(paper) else None)


def breaking(results: Results) -> Findings:
    """Table 2 is of L = 512 only; its lengths are 50 tokens, about 2 times and about 5 times L."""
    tested = {"50 tokens further": (562, None), "2 L": (1012, 2), "4 L": (2512, 4)}
    for method in BREAKING[:-1]:
        for n in results.lengths(method, results.main):
            for name, (printed, times) in tested.items():
                if not times and n != 512:
                    continue  # 50 tokens are little there, and much at shorter lengths
                paper = papers("table02", (method, 512, printed), (method, 512, 512))
                one = results.at(method, n, times * n if times else n + 50)
                what = f"{method_name(method)} trained at {n}, tested at {name} against {n}"
                yield from compared(what, one, results.at(method, n, n), paper)


def order_of_breaking(results: Results) -> Findings:
    """By the loss at 4 times the training length, each relative to that at the training length."""
    for n in results.lengths("alibi", results.main):
        for worse, better in zip(BREAKING, BREAKING[1:]):
            far = [results.at(method, n, 4 * n) for method in (worse, better)]
            near = [results.at(method, n, n) for method in (worse, better)]
            lost = [relative(*pair) for pair in zip(far, near) if None not in pair]
            if len(lost) == 2:
                names = f"{method_name(worse)} against {method_name(better)}"
                what = f"{names}, trained at {n}: what 4 L loses"
                yield from compared(what, *lost, paper=math.nan, direction=1)


def relative(one: Losses, other: Losses) -> Losses:
    """The losses of one evaluation above those of another one of the same models."""
    return Losses(one.model, one.seeds, one.bits - other.bits, one.tokens)


def short_beats_long(results: Results) -> Findings:
    lengths = results.lengths("sinusoidal", results.main)
    for n in results.lengths("alibi", results.main):
        for m in (length for length in lengths if length > n):
            what = f"ALiBi trained at {n} against sinusoidal trained at {m}, both tested at {m}"
            paper = papers("table05", ("alibi", n, m), ("sinusoidal", m, m))
            yield from compared(
                what, results.at("alibi", n, m), results.at("sinusoidal", m, m), paper
            )


def longer_is_better(results: Results) -> Findings:
    for method in ("sinusoidal", "alibi"):
        lengths = results.lengths(method, results.main)
        for n, m in zip(lengths, lengths[1:]):
            what = f"{method_name(method)} trained and tested at {m} against {n}"
            paper = papers("table05", (method, m, m), (method, n, n))
            yield from compared(what, results.at(method, m, m), results.at(method, n, n), paper)


def sliding(results: Results) -> Findings:
    for n in results.lengths("alibi", results.main):
        for times in (2, 4):
            for stride in sorted({each.stride for each in results.losses if each.stride < 64}):
                one, other = (results.at("alibi", n, m, stride) for m in (times * n, n))
                paper = papers("table15", ("alibi", 512, times * 512), ("alibi", 512, 512), S=1)
                what = f"ALiBi trained at {n}, S={stride}, tested at {times * n} against {n}"
                yield from compared(what, one, other, paper)


def sliding_long(results: Results) -> Findings:
    """ALiBi 512 → 3072 and sinusoidal 3072, both with S = 512: a sixth of the window."""
    for m in results.lengths("sinusoidal", results.main):
        for n in results.lengths("alibi", results.main):
            one, other = (
                results.at(*model, m, m // 4) for model in (("alibi", n), ("sinusoidal", m))
            )
            paper = papers("table07", ("alibi", 512, 3072), ("sinusoidal", 3072, 3072), S=512)
            what = (
                f"ALiBi trained at {n} against sinusoidal trained at {m}, tested at {m}, S={m // 4}"
            )
            if n < m:
                yield from compared(what, one, other, paper)


def other_domain(results: Results) -> Findings:
    for corpus in results.others:
        for n in results.lengths("alibi", corpus):
            one, other = (results.at(each, n, n, corpus=corpus) for each in ("alibi", "sinusoidal"))
            paper = papers("table08", ("alibi", n, n), ("sinusoidal", n, n))
            what = f"ALiBi against sinusoidal, trained and tested at {n} ({corpus})"
            yield from compared(what, one, other, paper)
        yield from gains(results, corpus, "table08")


def limited(results: Results) -> Findings:
    """Attention limited to the training length, at longer windows: level if nothing beyond is used."""
    for n in results.lengths("alibi", results.main):
        for times in (2, 4, 16):
            one = results.at("alibi", n, times * n, variant="limited")
            what = (
                f"ALiBi trained at {n}, tested at {times * n}: attention limited to {n} against not"
            )
            other = results.at("alibi", n, times * n)
            yield from compared(what, one, other, math.nan, direction=0)


def long_tests_lose(results: Results) -> Findings:
    for n in results.lengths("alibi", results.main):
        for times in (16, 4):
            one, other = (results.at("alibi", n, m) for m in (times * n, 2 * n))
            if one is not None:
                what = f"ALiBi trained at {n}, tested at {times * n} against {2 * n}"
                yield from compared(what, one, other, papers_figure06(times), direction=1)
                break


def papers_figure06(times: int) -> float:
    """ALiBi of 1.3B parameters trained at 512, against its best near twice the length."""
    found = {p.length: p.perplexity for p in published.points("figure06") if p.train_length == 512}
    near = min(found, key=lambda length: abs(length - times * 512))
    return (found[near] or math.nan) / (found[1012] or math.nan) - 1


def speed(results: Results) -> Findings:
    columns = {"train": "train_words_per_second", "evaluate": "eval_words_per_second"}
    printed = {
        (row["position_method"], row["train_length"]): row for row in published.rows("table01")
    }
    for (phase, method, n), seconds in sorted(results.speeds.items()):
        baseline = results.speeds.get((phase, "sinusoidal", n))
        if method not in BREAKING[1:] or baseline is None:
            continue
        rows = [printed.get((each, n)) for each in (method, "sinusoidal")]
        paper = rows[0][columns[phase]] / rows[1][columns[phase]] - 1 if all(rows) else math.nan
        what = f"speed of {method_name(method)} against sinusoidal at {n}, {phase}"
        # Rotary and T5 bias were not optimised in the paper (footnotes 5 and 8): shown only.
        found, direction = speed_up(seconds, baseline), 0 if method == "alibi" else None
        yield Finding(what, found, paper, direction, level=SPEED_COUNTS)


def kerple(results: Results) -> Findings:
    yield from against(results, "kerple", "alibi", 4)


def interpolation(results: Results) -> Findings:
    for n in results.lengths("alibi", results.main):
        for variant in ("interpolated", "interpolated_shallow"):
            one = results.at("alibi", n, 2 * n, variant=variant)
            what = (
                f"ALiBi trained at {n}, tested at {2 * n}: {variant.replace('_', ', ')} against not"
            )
            yield from compared(what, one, results.at("alibi", n, 2 * n), math.nan, direction=-1)


def no_positions(results: Results) -> Findings:
    for method in ("sinusoidal", "alibi"):
        yield from against(results, "none", method, 1)


def successors(results: Results) -> Findings:
    """Methods that neither the paper nor a claim above compares, at the training length and 4 times it."""
    tested = {"sinusoidal", "rotary", "t5", "alibi", "kerple", "none"}
    for method in dict.fromkeys(each.method for each in results.losses):
        if method not in tested:
            yield from against(results, method, "alibi", 1)
            yield from against(results, method, "alibi", 4)


def against(results: Results, method: str, baseline: str, times: int) -> Findings:
    """Comparisons of two methods without a number of the paper's; a direction makes it a claim."""
    direction = -1 if method == "kerple" else None
    for n in results.lengths(method, results.main):
        names = f"{method_name(method)} against {method_name(baseline)}"
        what = f"{names}, trained at {n}, tested at {times * n}"
        one, other = (results.at(each, n, times * n) for each in (method, baseline))
        yield from compared(what, one, other, math.nan, direction)


@dataclass(frozen=True)
class Claim:
    """A claim.

    Attributes:
        source: where it stands, with what it says.
        findings: yields the comparisons.
        positions: it presupposes that sinusoidal has learned positions.
        large: it is about models of another size, so there is no verdict.
        later: it is another paper's.
        note: what to know about the comparisons.
    """

    title: str
    source: str
    findings: Callable[[Results], Findings]
    positions: bool = False
    large: bool = False
    later: bool = False
    note: str = ""

    def verdict(self, results: Results) -> str:
        found = [each.verdict for each in self.findings(results)]
        if not found:
            return NOT_RUN
        if self.large or (self.positions and not has_learned_positions(results)):
            return NOT_HERE
        for verdict in (CONTRADICTED, OPEN, DIRECTION, SIZE):  # the worst of them
            if verdict in found:
                return verdict
        return ""


def has_learned_positions(results: Results) -> bool:
    """Whether sinusoidal beats no positions by as much as counts; without the latter, nobody knows."""
    found = [
        change(one, other).value <= -LEARNED
        for n in results.lengths("none", results.main)
        if (one := results.at("sinusoidal", n, n)) and (other := results.at("none", n, n))
    ]
    return bool(found) and all(found)


CLAIMS = (
    Claim(
        "ALiBi against sinusoidal at equal length",
        "Behind up to 128 tokens, ahead from 256 on (Table 5, p. 19).",
        equal_length,
        positions=True,
    ),
    Claim(
        "ALiBi against rotary and T5 bias at equal length",
        "Ahead of rotary; level with T5 bias at 512, ahead from 1024 on (Table 5, p. 19).",
        against_relative,
        note="At lengths where the paper has no models of these, its abstract is taken: ahead.",
    ),
    Claim(
        "ALiBi gains from windows longer than its training length",
        "Perplexity falls up to twice L and stays there (Table 5, p. 19).",
        gains,
    ),
    Claim(
        "Sinusoidal, rotary and T5 bias break",
        "Sinusoidal soon after 50 tokens, rotary before 2 L, T5 bias before 5 L (Table 2, p. 16, L = 512).",
        breaking,
        positions=True,
        note="The paper's numbers beside 4 L are of 2,512 tokens, 4.9 L.",
    ),
    Claim(
        "The order in which they break",
        "Sinusoidal first, then rotary, then T5 bias; ALiBi does not (Figure 1, p. 2).",
        order_of_breaking,
        positions=True,
        note="Each change is of the loss at 4 L relative to the loss at L.",
    ),
    Claim(
        "ALiBi trained short beats sinusoidal trained long",
        "At equal tokens (section 4.1, Table 5, p. 19).",
        short_beats_long,
        positions=True,
    ),
    Claim(
        "Training on longer sequences gives lower perplexity",
        "For both methods, at equal tokens (Table 5, p. 19).",
        longer_is_better,
    ),
    Claim(
        "With a sliding window, longer windows do not help ALiBi",
        "S = 1: level at 2 L, slightly worse at 4 L (Table 15, p. 25, L = 512).",
        sliding,
        note="With the stride that the rows name instead of 1.",
    ),
    Claim(
        "With a sliding window, sinusoidal trained long beats ALiBi trained short",
        "S = 512, 512 → 3072 against 3072 (Table 7, p. 20).",
        sliding_long,
        positions=True,
        note="The stride is a quarter of the window.",
    ),
    Claim(
        "ALiBi does not use what is further away than its training length",
        "Said to be possible (appendix B, p. 25); no number.",
        limited,
        note="A control: attention is limited to the training length.",
    ),
    Claim(
        "The same slopes serve another domain",
        "Ahead of sinusoidal on books, and gaining from longer windows (Table 8, p. 21).",
        other_domain,
    ),
    Claim(
        "Very long windows lose again at 1.3B parameters",
        "Best near twice L, worse at 16 L (Figure 6, p. 8).",
        long_tests_lose,
        large=True,
    ),
    Claim(
        "ALiBi is as fast as sinusoidal",
        "Within 1.3 % in training, 4.5 % in evaluation (Table 1, p. 15, on a V100).",
        speed,
        note="Rotary and T5 bias were not optimised in the paper, so they are shown only.",
    ),
    Claim(
        "KERPLE is ahead of ALiBi past the training length",
        "Chi et al. 2022 (arXiv 2205.09921).",
        kerple,
        later=True,
    ),
    Claim(
        "Interpolated positions help ALiBi at twice its training length",
        "Al-Khateeb et al. 2023 (arXiv 2310.13017), with billions of parameters.",
        interpolation,
        later=True,
    ),
    Claim(
        "No positions at all",
        "Close behind (Haviv et al. 2022, arXiv 2203.16634); how close is not said: no verdict.",
        no_positions,
        later=True,
    ),
    Claim(
        "The successors beside ALiBi",
        "What their papers trained is too far from these models for a verdict.",
        successors,
        later=True,
    ),
)
