"""Reasons why a measurement is not comparable with the paper's numbers."""

from __future__ import annotations

from dataclasses import asdict, replace

from ..reporting.row import model_label
from ..results.result import Result
from ..results.series import Series
from ..results.settings import plain
from . import published
from .recipe import RECIPES, recipe_path

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

# Options of a position method that a model of the paper has.
_PAPER_METHOD_OPTIONS = {"mem_len"}


def different_units_reason(result: Result) -> str | None:
    """Return why a perplexity is in different units from the paper's, or None.

    Args:
        result: a result that is comparable otherwise (:func:`incomparability_reason`).
    """
    setting = published.paper_setting(result.case.corpus)
    if setting is None or setting["vocabulary"] is None:
        return None
    tokenizer = result.text.tokenizer
    if tokenizer != setting["tokenizer"]:
        return f"the tokenizer is {tokenizer}, the paper's {setting['tokenizer']}"
    for key, (name, tolerance) in _SIZES.items():
        size = getattr(result.text, key)
        if size is None:
            return f"the results do not record the number of {name}"
        if abs(size - setting[key]) > tolerance * setting[key]:
            return f"{size:,} {name}, about {setting[key]:,} in the paper"
    return None


def incomparability_reason(result: Result) -> str | None:
    """Return why a result is not comparable with the paper's, or None."""
    corpus = result.case.corpus
    series = result.series
    setting = published.paper_setting(corpus)
    if setting is None:
        return f"{corpus} is not a corpus of the paper"
    # WikiText-103 is recognized by its dictionary.
    if result.text.tokenizer is None and setting["dictionary_entries"] is None:
        return "the data has no manifest, so its name is that of a folder"
    if series.facts.architecture != setting["model"]:
        return f"the paper's model on {corpus} is {setting['model']}"
    other_model = different_model_reason(setting, series)
    if other_model is not None:
        return other_model
    other_batch = different_batch_reason(corpus, series)
    if other_batch is not None:
        return other_batch
    other_start = different_start_reason(setting, corpus, series)
    if other_start is not None:
        return other_start
    if result.reading.overrides:
        return "options of the model were changed for the evaluation"
    if result.case.has_range:
        return "only a part of the tokens was scored"
    if setting["updates"] is None:
        return None
    if result.updates is None:
        return "the number of updates is not recorded"
    if result.updates < _MIN_UPDATES_FRACTION * setting["updates"]:
        return f"the paper trains for {setting['updates']:,} updates"
    return None


def different_model_reason(setting: dict, series: Series) -> str | None:
    """Return why a model differs from the paper's, or None. Unknown values count as the same.

    Args:
        setting: the paper's setting.
        series: how the model was trained.
    """
    paper_size = (setting["layers"], setting["width"])
    facts = series.facts
    size = (facts.layers or setting["layers"], facts.width or setting["width"])
    if size != paper_size:
        return (
            f"the model has {size[0]} layers of width {size[1]}, the paper's {paper_size[0]} of "
            f"width {paper_size[1]}"
        )
    entries = setting["dictionary_entries"]
    if entries is not None and facts.vocabulary not in (None, entries):
        return f"the dictionary has {facts.vocabulary:,} entries, the paper's {entries:,}"
    for option, value in series.method.option_texts.items():  # without those with their default
        if option in _PAPER_METHOD_OPTIONS:
            continue
        return f"the paper trains without --{option.replace('_', '-')} {value}"
    for option, paper_value in {**block_options(), **size_options(setting)}.items():
        ours = plain(series.settings.get(f"model.{option}", paper_value))
        if f"model.no_{option}" in series.settings:
            ours = False
        if ours == plain(paper_value):
            continue
        name = option.replace("_", "-")
        if ours is False:
            return f"the paper trains without --no-{name}"
        if ours is True:
            return f"the paper trains without --{name}"
        return f"the paper trains without --{name} {ours}"
    return None


def different_batch_reason(corpus: str, series: Series) -> str | None:
    """Return why the updates of a training differ from the paper's, or None.

    Args:
        corpus: corpus of the training.
        series: how the model was trained.
    """
    recipe = RECIPES.get(recipe_path(corpus, series.method, series.train_length))
    if recipe is None:
        return None
    break_mode = series.settings.get("task.sample_break_mode", "none")
    if break_mode != "none":
        return f"the paper trains without --sample-break-mode {break_mode}"
    tokens = series.tokens_per_update
    if tokens is None:
        return None
    paper_tokens = recipe.batch.tokens_per_update
    if abs(tokens - paper_tokens) <= _BATCH_TOLERANCE * paper_tokens:
        return None
    return f"{tokens:,.0f} tokens per update, the paper {paper_tokens:,}"


def different_start_reason(setting: dict, corpus: str, series: Series) -> str | None:
    """Return why a training began differently from the paper's, or None.

    A change of any other setting, such as the precision, is not a reason, since models with another
    value of it are comparable, too.

    Args:
        setting: the paper's setting.
        corpus: corpus of the training.
        series: how the model was trained.
    """
    if series.start is not None:
        return "the training started from a checkpoint"
    for stage in series.history:
        earlier = replace(series, settings=stage.settings)
        reason = different_model_reason(setting, earlier)
        if reason is None:
            reason = different_batch_reason(corpus, earlier)
        if (earlier.method, earlier.train_length) != (series.method, series.train_length):
            reason = f"the model was {model_label(earlier.method.label, earlier.train_length)}"
        if reason is not None:
            return f"before update {stage.until:,}: {reason}"
    return None


def block_options() -> dict[str, object]:
    """Return the options that change the block, with their defaults, as the paper's models have."""
    from ..blocks.options import BlockOptions  # imports PyTorch

    return {"block_diagonal": "none", "key_value_heads": 0, **asdict(BlockOptions())}


def size_options(setting: dict) -> dict[str, int]:
    """Return the options that determine the size of the paper's model, with their values."""
    width = setting["width"]
    return {
        "decoder_layers": setting["layers"],
        "decoder_embed_dim": width,
        "decoder_ffn_embed_dim": 4 * width,
        "decoder_attention_heads": setting["heads"],
        "decoder_input_dim": width,
        "decoder_output_dim": width,
    }
