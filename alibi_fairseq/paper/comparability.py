"""Reasons why a measurement is not comparable with the paper's numbers."""

from __future__ import annotations

from dataclasses import fields

from ..results.model import Model
from ..results.record import Measurement
from . import published
from .recipe import RECIPES, recipe_name

# Fraction of the paper's updates from which a model counts as trained in the paper's setting. The
# best checkpoint is seldom the last one.
_MIN_UPDATES_FRACTION = 0.85

# Largest relative difference from the paper's tokens per update. A recipe keeps them on any number
# of GPUs.
_BATCH_TOLERANCE = 0.05

# Name and relative tolerance of each text size. The paper rounds them: "29K", "about 700M tokens",
# "2.9 GB" (10^9 or 2^30 bytes).
_SIZES = {
    "vocabulary": ("entries in the vocabulary", 0.05),
    "train_tokens": ("tokens", 0.05),
    "train_bytes": ("bytes of text", 0.1),
}

# Options that do not change the model.
_HARMLESS_OVERRIDES = {"attention_backend"}

# Options of a position method that a model of the paper has.
_PAPER_METHOD_OPTIONS = {"mem_len"}


def different_units_reason(measurement: Measurement) -> str | None:
    """Return why a perplexity is in different units from the paper's, or None."""
    setting = published.setting_of(measurement.corpus)
    if setting is None or setting["vocabulary"] is None:
        return None
    if measurement.text is None:
        return "the results do not record the tokenizer of the text"
    tokenizer = measurement.text.tokenizer
    if tokenizer != setting["tokenizer"]:
        return f"the tokenizer is {tokenizer}, the paper's {setting['tokenizer']}"
    for key, (name, tolerance) in _SIZES.items():
        size = getattr(measurement.text, key)
        if size is None:
            return f"the results do not record the number of {name}"
        if abs(size - setting[key]) > tolerance * setting[key]:
            return f"{size:,} {name}, about {setting[key]:,} in the paper"
    return None


def incomparability_reason(measurement: Measurement) -> str | None:
    """Return why a measurement is not comparable with the paper's, or None."""
    corpus = str(measurement.corpus)
    model = measurement.model
    setting = published.setting_of(corpus)
    if setting is None:
        return f"{corpus} is not a corpus of the paper"
    if model.architecture != setting["model"]:
        return f"the paper's model on {corpus} is {setting['model']}"
    other_model = different_model_reason(setting, model)
    if other_model is not None:
        return other_model
    other_batch = different_batch_reason(corpus, model, model.tokens_per_update)
    if other_batch is not None:
        return other_batch
    if set(model.overrides or {}) - _HARMLESS_OVERRIDES:
        return "options of the model were changed for the evaluation"
    if measurement.score_from is not None or measurement.score_to is not None:
        return "only a part of the tokens was scored"
    if setting["updates"] is None:
        return None
    if model.updates is None:
        return "the number of updates is not recorded"
    if model.updates < _MIN_UPDATES_FRACTION * setting["updates"]:
        return f"the paper trains for {setting['updates']:,} updates"
    return None


def different_model_reason(setting: dict, model: Model) -> str | None:
    """Return why a model differs from the paper's, or None. Unknown values are equal.

    Args:
        setting: the paper's setting.
        model: the model.
    """
    paper_size = (setting["layers"], setting["width"])
    size = (model.layers or setting["layers"], model.width or setting["width"])
    if size != paper_size:
        return (
            f"the model has {size[0]} layers of width {size[1]}, the paper's {paper_size[0]} of "
            f"width {paper_size[1]}"
        )
    for option, value in model.method.option_texts.items():  # without those with their default
        if option in _PAPER_METHOD_OPTIONS:
            continue
        return f"the paper trains without --{option.replace('_', '-')} {value}"
    values = model.options or {}
    paper_options = {**block_options(), **size_options(setting)}
    for option, paper_value in paper_options.items():
        name = option.replace("_", "-")
        if paper_value == "true" and f"no_{option}" in values:
            return f"the paper trains without --no-{name}"
        value = values.get(option, paper_value)
        if not _are_equal(value, paper_value):
            return f"the paper trains without --{name} {value}".strip()
    return None


def different_batch_reason(corpus: str, model: Model, tokens: float | None) -> str | None:
    """Return why the updates of a training differ from the paper's, or None.

    Args:
        corpus: corpus of the training.
        model: the model.
        tokens: number of tokens per update, or None if unknown.
    """
    recipe = RECIPES.get(recipe_name(corpus, model))
    if recipe is None:
        return None
    break_mode = (model.options or {}).get("sample_break_mode", "none")
    if break_mode != "none":
        return f"the paper trains without --sample-break-mode {break_mode}"
    if tokens is None:
        return None
    paper_tokens = recipe.batch.tokens_per_update
    if abs(tokens - paper_tokens) <= _BATCH_TOLERANCE * paper_tokens:
        return None
    return f"{tokens:,.0f} tokens per update, the paper {paper_tokens:,}"


def block_options() -> dict[str, str]:
    """Return the options that change the block, with their defaults, as the paper's models have."""
    from ..blocks.options import BlockOptions  # imports PyTorch

    options = {"block_diagonal": "none"}
    for field in fields(BlockOptions):
        options[field.name] = str(field.default).lower()
    return options


def size_options(setting: dict) -> dict[str, str]:
    """Return the options that determine the size of the paper's model, with their values."""
    width = setting["width"]
    return {
        "decoder_layers": str(setting["layers"]),
        "decoder_embed_dim": str(width),
        "decoder_ffn_embed_dim": str(4 * width),
        "decoder_attention_heads": str(setting["heads"]),
        "decoder_input_dim": str(width),
        "decoder_output_dim": str(width),
    }


def _are_equal(value: str, default: str) -> bool:
    """Return True if two values of an option are the same text or the same number."""
    try:
        return float(value) == float(default)
    except ValueError:
        return value.lower() == default
