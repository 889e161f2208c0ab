"""Variation of perplexity between seeds, and marks for differences from the paper."""

from __future__ import annotations

from dataclasses import dataclass

from ..reporting import markdown
from ..reporting.row import Point
from . import published
from .comparability import different_units_reason
from .published import PrintedMeasurement


@dataclass(frozen=True)
class Noise:
    """Variation of perplexity between runs that differ only in the seed.

    Attributes:
        spread: one standard deviation.
        range: largest gap among five seeds, None where it has not been reported.
        highest: largest perplexity to which the noise applies, twice the one it was measured at.
            Models that fail to extrapolate are not judged by it.
    """

    spread: float
    range: float | None
    highest: float

    def mark(self, ours: float, printed: float) -> str:
        """Return the mark of the difference between two perplexities.

        It is ``=`` within one standard deviation, ``~`` within the range of seeds, ``≠`` outside,
        and empty for a perplexity of the paper above :attr:`highest`.

        Args:
            ours: our perplexity.
            printed: the paper's perplexity.
        """
        if printed > self.highest:
            return ""
        gap = round(abs(ours - printed), 2)  # the paper's numbers have two decimals
        if gap <= self.spread:
            return "="
        if self.range is not None and gap <= self.range:
            return "~"
        return "≠"


def find_noise(corpus: str, train_length: int | None = None) -> Noise | None:
    """Return the noise of a corpus, or None if it is unknown.

    The noise is the one measured at the training length, if any, or else the largest known one.
    """
    known = [row for row in published.rows("noise") if row["corpus"] == corpus]
    deviations = [row for row in known if row["statistic"] == "standard_deviation"]
    if not deviations:
        return None
    largest = max(deviations, key=lambda row: row["perplexity"])
    same_length = []
    if train_length is not None:
        same_length = [row for row in deviations if row["train_length"] == train_length]
    deviation = same_length[0] if same_length else largest
    ranges = [row["perplexity"] for row in known if row["statistic"] == "range"]
    return Noise(
        spread=deviation["perplexity"],
        range=max(ranges, default=None),
        highest=2 * deviation["measured_at_perplexity"],
    )


def marked_difference(corpus: str, ours: Point | None, printed: Point | None) -> str:
    """Format our perplexity minus the paper's, with a mark if the text is the paper's.

    Args:
        corpus: corpus of the paper.
        ours: our point, or None if it has not been measured.
        printed: the paper's point, or None if it has none.
    """
    if ours is None or not isinstance(printed, PrintedMeasurement):
        return markdown.NOTHING
    if ours.perplexity is None or printed.perplexity is None:
        return markdown.NOTHING
    gap = markdown.difference(ours.perplexity - printed.perplexity)
    noise = find_noise(corpus, printed.train_length)
    if noise is None or any(different_units_reason(result) for result in ours.results):
        return gap
    return f"{gap} {noise.mark(ours.perplexity, printed.perplexity)}".rstrip()


def legend(corpus: str) -> str:
    """Return the explanation of the marks after differences, with the reports they are based on."""
    noise = find_noise(corpus)
    if noise is None:
        return (
            "The variation between seeds on this corpus has not been reported, "
            "so there are no marks."
        )
    known = [row for row in published.rows("noise") if row["corpus"] == corpus]
    text = (
        f"Difference: ours − paper; = within one standard deviation between seeds ({noise.spread}"
    )
    for row in known:
        if row["statistic"] == "standard_deviation" and row["perplexity"] != noise.spread:
            text += f"; {row['perplexity']} at L={row['train_length']}"
    text += ")"
    if noise.range is not None:
        text += f", ~ within the range of five seeds ({noise.range})"
    text += (
        f", ≠ outside; no mark above a perplexity of {noise.highest:.0f}, "
        "where it was never measured."
    )
    for row in known:
        if row["statistic"] == "largest_gap":
            text += f" Two sets of runs by the paper's author differ by up to {row['perplexity']}."
    return text
