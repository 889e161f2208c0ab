"""What the primary small models show, in three sentences for the README and the study's page."""

from __future__ import annotations

import textwrap

from .estimates import Estimate, estimate_change, percent
from .losses import Losses
from .primary_tests import StudiedModels

ALIBI = """\
- **ALiBi extrapolates.** At 2, 4, and 16 times the training length, its perplexity is {two},
{four}, and {sixteen} lower than at the training length."""

CONTEXT = """\
- **Part of that gain is real use of context**, not only fewer tokens with little of it: with
sliding windows, where every token has much context, its perplexity still falls by {sliding} at
4 times the training length."""

BASELINES = """\
- **Sinusoidal embeddings and RoPE do not:** their perplexity rises by {sinusoidal} and {rotary}
at 4 times the training length."""


def findings_of_small_models(losses: Losses, models: StudiedModels, width: int) -> list[str]:
    """Return what the models show about extrapolation, in lines of at most ``width``.

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
        change = _change(losses, longer, shorter)
        rises = name in ("sinusoidal", "rotary")
        if change is None or (change.value > 0) != rises:
            return []
        sizes[name] = percent(change.value).lstrip("+-")
    return [filled(template, width, **sizes) for template in (ALIBI, CONTEXT, BASELINES)]


def _change(losses: Losses, first: object, second: object) -> Estimate | None:
    """Return the change from the second to the first evaluation; None if one is missing."""
    if first not in losses or second not in losses:
        return None
    return estimate_change(losses[first], losses[second])


def filled(template: str, width: int, **values: object) -> str:
    """Return a template with its values, wrapped as Markdown."""
    text = " ".join(template.format(**values).split())
    indent = "  " if text.startswith("- ") else ""
    return textwrap.fill(
        text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
