"""How a change in perplexity is written: in cells of tables, and in the words of a sentence."""

from __future__ import annotations

from collections.abc import Sequence

from alibi_fairseq.reporting import markdown

from ..analysis.estimates import Estimate, percent

#: Headers of the cells of :func:`change_cells`.
CHANGE_HEADERS = ("change", "95% interval")


def percent_cell(nats: float | None) -> str:
    """Return a change in nats as a change in perplexity; a dash for an unknown one."""
    return markdown.NOTHING if nats is None else percent(nats)


def change_cells(estimate: Estimate | None) -> list[str]:
    """Return an estimated change and its 95% interval; dashes for an unknown one."""
    if estimate is None:
        return [markdown.NOTHING, markdown.NOTHING]
    low, high = estimate.interval()
    return [percent(estimate.value), f"{percent(low)} … {percent(high)}"]


def with_interval(estimate: Estimate) -> str:
    """Return an estimated change with its 95% interval in parentheses."""
    change, interval = change_cells(estimate)
    return f"{change} ({interval})"


def seeds_cell(estimate: Estimate) -> str:
    """Return the number of seeds of a change, one for each group of models that differs."""
    return " and ".join(str(count) for count in dict.fromkeys(estimate.seeds))


def changes_table(rows: Sequence[Sequence[str]], *more_headers: str) -> str:
    """Write a table of changes with their seeds; empty without rows.

    Args:
        rows: name, cells of the change (:func:`change_cells`), seeds, and further cells.
        more_headers: headers of the further cells.
    """
    headers = ["", *CHANGE_HEADERS, "seeds", *more_headers]
    return markdown.table(headers, rows) if rows else ""


def size_in_words(nats: float) -> str:
    """Return the size of a change, such as ``7.4%``."""
    return percent(nats).lstrip("+-")


def change_in_words(nats: float) -> str:
    """Return a change, such as ``7.4% lower``."""
    return f"{size_in_words(nats)} {'lower' if nats < 0 else 'higher'}"


def change_as_verb(nats: float) -> str:
    """Return a change, such as ``falls by 7.4%``."""
    return f"{'falls' if nats < 0 else 'rises'} by {size_in_words(nats)}"


def interval_in_words(estimate: Estimate) -> str:
    """Return the 95% interval of a change, such as ``6.3% to 8.4%``.

    The direction is that of the change; it is only named if the interval has both.
    """
    low, high = estimate.interval()
    if low < 0 < high:
        return f"{change_in_words(low)} to {change_in_words(high)}"
    smaller, larger = sorted((low, high), key=abs)
    return f"{size_in_words(smaller)} to {size_in_words(larger)}"
