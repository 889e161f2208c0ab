"""Changes of perplexity, and lists, in the words of a sentence; tables keep their signs."""

from __future__ import annotations

from collections.abc import Sequence

from .analysis.estimates import Estimate, percent
from .tables import method_label

#: Names of position methods in sentences, where they differ from those in tables.
METHODS_IN_WORDS = {
    "Sinusoidal": "sinusoidal embeddings",
    "Learned": "learned embeddings",
    "Rotary": "rotary embeddings (RoPE)",
    "No positions": "no positions (NoPE)",
}


def size_in_words(nats: float) -> str:
    """Return the size of a change, such as ``7.4%``."""
    return percent(nats).lstrip("+-")


def change_in_words(nats: float) -> str:
    """Return a change, such as ``7.4% lower``."""
    return f"{size_in_words(nats)} {'lower' if nats < 0 else 'higher'}"


def interval_in_words(estimate: Estimate) -> str:
    """Return the 95% interval of a change, such as ``6.3% to 8.4%``.

    The direction is that of the change; it is only named if the interval has both.
    """
    low, high = estimate.interval()
    if low < 0 < high:
        return f"{change_in_words(low)} to {change_in_words(high)}"
    smaller, larger = sorted((low, high), key=abs)
    return f"{size_in_words(smaller)} to {size_in_words(larger)}"


def method_in_words(method: str) -> str:
    """Return the name of a position method in a sentence, such as ``ALiBi with even slopes``."""
    label = method_label(method)
    # A comma would end the name in a list.
    return METHODS_IN_WORDS.get(label, label.replace(", ", " with ", 1))


def join_words(words: Sequence[str]) -> str:
    """Return a list with commas and a final "and"."""
    if len(words) < 3:
        return " and ".join(words)
    return f"{', '.join(words[:-1])}, and {words[-1]}"
