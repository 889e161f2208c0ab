"""How methods, shares, numbers of tokens, and lists are written."""

from __future__ import annotations

from collections.abc import Sequence

from alibi_fairseq.positions.spec import LayerMethod

#: Abbreviations by which readers know position methods.
ABBREVIATIONS = {"rotary": "RoPE", "none": "NoPE"}
#: Names of position methods in sentences, where they differ from those in tables.
METHODS_IN_WORDS = {
    "Sinusoidal": "sinusoidal embeddings",
    "Learned": "learned embeddings",
    "Rotary": "rotary embeddings (RoPE)",
    "No positions": "no positions (NoPE)",
}


def method_label(notation: str) -> str:
    """Return the name of a position method in tables, such as ``ALiBi, even slopes``.

    Args:
        notation: its notation (:func:`.evaluation_key.method_notation`).
    """
    name, *settings = notation.split("/")
    options = dict(setting.split("=", 1) for setting in settings)
    return LayerMethod(name, options).label


def full_name(method: str) -> str:
    """Return the name of a position method with its abbreviation, if readers know it by one."""
    if method not in ABBREVIATIONS:
        return method_label(method)
    return f"{method_label(method)} ({ABBREVIATIONS[method]})"


def method_in_words(method: str) -> str:
    """Return the name of a position method in a sentence, such as ``ALiBi with even slopes``."""
    label = method_label(method)
    # A comma would end the name in a list.
    return METHODS_IN_WORDS.get(label, label.replace(", ", " with ", 1))


def percentage(share: float) -> str:
    """Return a share of a gain in percent, or ``none`` for a loss."""
    return f"{100 * share:.0f}%" if share > 0 else "none"


def millions(tokens: float | None) -> str:
    """Return a number of tokens in millions."""
    return f"{(tokens or 0) / 1e6:.1f}M"


def join_words(words: Sequence[str]) -> str:
    """Return a list with commas and a final "and"."""
    if len(words) < 3:
        return " and ".join(words)
    return f"{', '.join(words[:-1])}, and {words[-1]}"
