"""What the primary small models show, in three sentences for the README and the study's page."""

from __future__ import annotations

from collections.abc import Mapping

from alibi_fairseq.reporting.page import fill_file

from .estimates import change_between
from .losses import Losses
from .pages import SECTIONS
from .primary_tests import StudiedModels
from .prose import size_in_words


def findings_of_small_models(losses: Losses, models: StudiedModels, width: int) -> str:
    """Return what the models show about extrapolation as a list, in lines of at most ``width``.

    Empty if models are missing, or if they show something else than the published ones.
    """
    stride = models.train_length // 8
    at_length = models.key("alibi")
    pairs = {
        "two": (models.key("alibi", 2), at_length),
        "four": (models.key("alibi", 4), at_length),
        "sixteen": (models.key("alibi", 16), at_length),
        "sliding": (models.key("alibi", 4, stride), models.key("alibi", 1, stride)),
        "sinusoidal": (models.key("sinusoidal", 4), models.key("sinusoidal")),
        "rotary": (models.key("rotary", 4), models.key("rotary")),
    }
    sizes = {}
    for name, (longer, shorter) in pairs.items():
        change = change_between(losses, longer, shorter)
        rises = name in ("sinusoidal", "rotary")
        if change is None or (change.value > 0) != rises:
            return ""
        sizes[name] = size_in_words(change.value)
    return bullets("findings", sizes, width)


def bullets(name: str, slots: Mapping[str, object], width: int) -> str:
    """Fill the slots of a section, and return its paragraphs as a list."""
    indent = "  "
    filled = fill_file(SECTIONS / f"{name}.md", slots, width - len(indent))
    items = []
    for paragraph in filled.split("\n\n"):
        items.append("- " + paragraph.replace("\n", f"\n{indent}"))
    return "\n".join(items)
