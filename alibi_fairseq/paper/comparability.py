"""Reasons why a measurement is not comparable with the paper's numbers."""

from __future__ import annotations

import json

from ..results.measurements import Measurement
from . import published

# Fraction of the paper's updates from which a model counts as trained in the paper's setting. The
# best checkpoint is seldom the last one.
_MIN_UPDATES_FRACTION = 0.85

# Name and relative tolerance of each text size. The paper rounds them: "29K", "about 700M tokens",
# "2.9 GB" (10^9 or 2^30 bytes).
_SIZES = {
    "vocabulary": ("entries in the vocabulary", 0.05),
    "train_tokens": ("tokens", 0.05),
    "train_bytes": ("bytes of text", 0.1),
}

# Options that do not change the model.
_HARMLESS_OVERRIDES = {"attention_backend"}


def why_other_text(corpus: str, text: dict | None) -> str | None:
    """Return why perplexities on a text are in other units than the paper's, or None.

    Args:
        corpus: corpus of the results.
        text: tokenizer and sizes of the text (``provenance.text``); None if not recorded.
    """
    setting = published.settings(corpus)
    if setting is None or setting["vocabulary"] is None:
        return None
    if text is None:
        return "the results do not record the tokenizer of the text"
    if text["tokenizer"] != setting["tokenizer"]:
        return f"the tokenizer is {text['tokenizer']}, the paper's {setting['tokenizer']}"
    for key, (name, tolerance) in _SIZES.items():
        size = text.get(key)
        if size is None:
            return f"the results do not record the number of {name}"
        if abs(size - setting[key]) > tolerance * setting[key]:
            return f"{size:,} {name}, about {setting[key]:,} in the paper"
    return None


def why_not_comparable(corpus: str, measurement: Measurement) -> str | None:
    """Return why a measurement is not comparable with the paper's, or None.

    Args:
        corpus: corpus of the results.
        measurement: one of the results.
    """
    setting = published.settings(corpus)
    if setting is None:
        return f"{corpus} is not a corpus of the paper"
    if measurement.model != setting["model"]:
        return f"the paper's model on {corpus} is {setting['model']}"
    overrides = json.loads(measurement.model_overrides or "{}")
    if set(overrides) - _HARMLESS_OVERRIDES:
        return "options of the model were changed for the evaluation"
    if measurement.score_from is not None or measurement.score_to is not None:
        return "only a part of the tokens was scored"
    if setting["updates"] is None:
        return None
    if measurement.updates is None:
        return "the number of updates is not recorded"
    if measurement.updates < _MIN_UPDATES_FRACTION * setting["updates"]:
        return f"the paper trains for {setting['updates']:,} updates"
    return None
