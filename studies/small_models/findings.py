"""What the primary small models show, in three sentences for the README and the study's page."""

from __future__ import annotations

from pathlib import Path

from ..analysis.compared_models import SLIDING, ComparedLosses
from ..sections.changes import size_in_words
from ..sections.templates import bullets

TEMPLATE = Path(__file__).with_name("findings.md")
#: Longer and shorter evaluation of each change, and whether perplexity rises.
CHANGES = {
    "two": ("alibi-1@2", "alibi-1@1", False),
    "four": ("alibi-1@4", "alibi-1@1", False),
    "sixteen": ("alibi-1@16", "alibi-1@1", False),
    "sliding": (f"alibi-1@4{SLIDING}", f"alibi-1@1{SLIDING}", False),
    "sinusoidal": ("sinusoidal-1@4", "sinusoidal-1@1", True),
    "rotary": ("rotary-1@4", "rotary-1@1", True),
}


def findings_of_small_models(losses: ComparedLosses, width: int) -> str:
    """Return what the models show about extrapolation as a list, in lines of at most ``width``.

    Empty if models are missing, or if they show something else than the published ones.
    """
    sizes = {}
    changes = {}
    for name, (longer, shorter, rises) in CHANGES.items():
        change = losses.change(longer, shorter)
        if change is None or (change.value > 0) != rises:
            return ""
        changes[name] = change.value
        sizes[name] = size_in_words(change.value)
    if changes["sliding"] < changes["four"] / 2:  # most of the gain remains
        return ""
    return bullets(TEMPLATE, sizes, width)
