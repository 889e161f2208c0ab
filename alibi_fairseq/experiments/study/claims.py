"""The claims that a study tries, and the verdict on each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from . import findings
from .description import Key
from .findings import Finding, Results
from .outcomes import Outcome, Speeds

HOLDS, SO_FAR, FAILS, OPEN, NOT_RUN = (
    "reproduced",
    "reproduced so far",
    "not reproduced",
    "cannot be told at this scale",
    "not run yet",
)


@dataclass(frozen=True)
class Claim:
    """A claim and its findings.

    Attributes:
        paper: where it stands.
        note: what to know about the findings.
        missing: methods that it speaks of and that have not been trained.
    """

    title: str
    paper: str
    findings: tuple[Finding, ...]
    note: str = ""
    missing: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        of_seeds: dict[str, list[bool | None]] = {}
        for finding in self.findings:
            if finding.counts:
                of_seeds.setdefault(finding.what, []).append(finding.agrees)
        counted = [agreed(found) for found in of_seeds.values()]
        if not counted:
            return NOT_RUN
        if False in counted:
            return FAILS
        if None in counted:
            return OPEN
        return SO_FAR if self.missing else HOLDS


def agreed(of_seeds: list[bool | None]) -> bool | None:
    """What one comparison says with several seeds: nothing if they contradict each other.

    Intervals over documents do not cover the seed, so a small difference may be beyond doubt with
    each of two seeds, and have the opposite sign.
    """
    if {True, False} <= set(of_seeds):
        return None
    return next((verdict for verdict in (False, None) if verdict in of_seeds), True)


@dataclass(frozen=True)
class Statement:
    """A claim before it is tried.

    Attributes:
        paper: where it stands.
        findings: what is looked at.
        needs: methods without which it is reproduced "so far" only.
        corpus: that they must be trained on.
        note: what to know about the findings.
    """

    title: str
    paper: str
    findings: tuple[Callable[[Results], Iterator[Finding]], ...]
    needs: tuple[str, ...] = ()
    corpus: str | None = None
    note: str = ""

    def tried(self, results: Results) -> Claim:
        found = tuple(finding for of in self.findings for finding in of(results))
        missing = results.missing(*self.needs, corpus=self.corpus)
        return Claim(self.title, self.paper, found, self.note, missing)


#: In the order in which they are numbered.
STATEMENTS = (
    Statement(
        "1. At equal length ALiBi matches or beats sinusoidal",
        "From L = 256 on; at 64 and 128 it is behind (Table 5).",
        (findings.equal_length,),
    ),
    Statement(
        "2. ALiBi gains from windows up to twice its training length and holds to 16 times; the "
        "others break",
        "Sinusoidal within 50 tokens, rotary within a few hundred, T5 bias at 2 to 3 times L "
        "(Tables 2-4).",
        (findings.alibi_extrapolates, findings.others_break),
        needs=("alibi", *findings.BREAKING),
    ),
    Statement(
        "3. ALiBi trained short and tested long beats sinusoidal trained long",
        "At equal tokens, and in less time (section 4.1, Table 5).",
        (findings.short_beats_long, findings.short_is_faster),
    ),
    Statement(
        "4. Order of the methods in training speed and memory",
        "Sinusoidal and ALiBi are level, rotary is slower, T5 bias takes about twice the time "
        "(Table 1, on a GPU).",
        (findings.speeds, findings.memory),
        note="The order counts, not how far the paper's GPU had the methods apart. Updates of all models "
        "were timed in turns on one machine. Memory is all that a training process held.",
    ),
    Statement(
        "5. The gain from longer tests is mostly the early-token curse",
        "With windows that slide by one token perplexity is flat (Tables 13-15).",
        (findings.early_tokens,),
    ),
    Statement(
        "6. The same slopes serve another domain",
        "ALiBi is ahead of sinusoidal on books as well, and extrapolates (Table 8).",
        (findings.other_domain,),
        needs=("alibi", "sinusoidal"),
        corpus="books",
    ),
    Statement(
        "7. Long tests lose again",
        "At 1.3B parameters perplexity is best near twice L and gets worse than at L (Figure 6).",
        (findings.long_tests_lose,),
    ),
    Statement(
        "8. KERPLE is ahead of ALiBi past the training length",
        "Chi et al. 2022.",
        (findings.kerple_ahead,),
        note="One seed says little about differences as small as these.",
    ),
    Statement(
        "9. Interpolation helps ALiBi at twice the training length",
        "Al-Khateeb et al. 2023, with models of billions of parameters.",
        (findings.interpolation_helps,),
    ),
    Statement(
        "10. No positions at all are close behind",
        "Later papers; how close is not said, so there is no verdict.",
        (findings.without_positions,),
    ),
)


def claims(outcomes: dict[Key, Outcome], speeds: Speeds | None = None) -> list[Claim]:
    """All claims, in their order.

    Args:
        speeds: as :func:`.outcomes.load_speeds` gives them.
    """
    results = Results(outcomes, speeds)
    return [statement.tried(results) for statement in STATEMENTS]
