"""Layer patterns of open models by name, as notations of ``compare``.

The windows are those of the models, except for ``gemma3``, which has the default of transformers.
With shorter training lengths, give others:
``rnope_swa/attention_window=64+64+64+0``.
"""

from __future__ import annotations

from typing import NamedTuple


class ModelPattern(NamedTuple):
    """Position methods and attention windows of the layers of a model.

    Attributes:
        notation: the pattern in the notation of ``compare``.
        models: models with it, and their source.
        differs: what is different in these models; empty if nothing is.
    """

    notation: str
    models: str
    differs: str = ""


#: Layer patterns by name. Names of position methods are none of them.
MODEL_PATTERNS = {
    "rnope_swa": ModelPattern(
        "rotary+rotary+rotary+none/attention_window=4096+4096+4096+0",
        "RNoPE-SWA (arXiv 2501.18795), Command A, Cohere2",
    ),
    "swan": ModelPattern(
        "rotary+rotary+rotary+none/attention_window=512+512+512+0/score_scaling=logn",
        "SWAN-GPT (arXiv 2504.08719)",
        "it scales the scores at evaluation only, and begins with the layer without positions",
    ),
    "smollm3": ModelPattern("rotary+rotary+rotary+none", "SmolLM3"),
    "llama4": ModelPattern(
        "rotary+rotary+rotary+none/attention_window=8192+8192+8192+0",
        "Llama 4",
        "Llama 4 cuts the text into chunks of 8,192 tokens instead of sliding a window, and scales "
        "the scores of the layers without positions",
    ),
    "gemma3": ModelPattern(
        "rotary/attention_window=4096+4096+4096+4096+4096+0",
        "Gemma 3",
        "Gemma 3 uses a different rotary base in the layers without a window; released models have "
        "windows of 512 (270M, 1B) or 1,024 tokens (4B to 27B), not transformers' default of 4,096",
    ),
}


def expand_pattern(notation: str) -> str:
    """Replace the name of a pattern at the beginning of a notation; options in it take precedence.

    Any other notation is returned as it is.
    """
    name, *settings = notation.split("/")
    if name not in MODEL_PATTERNS:
        return notation
    methods, *defaults = MODEL_PATTERNS[name].notation.split("/")
    given = {setting.partition("=")[0] for setting in settings}
    kept = [default for default in defaults if default.partition("=")[0] not in given]
    return "/".join([methods, *kept, *settings])
