"""Layer patterns of open models, against their configurations in transformers."""

from __future__ import annotations

import pytest

from alibi_fairseq.errors import UserInputError
from alibi_fairseq.positions import METHODS, MethodSpec
from alibi_fairseq.positions.model_patterns import MODEL_PATTERNS

LAYERS = 12


def pattern(name):
    """Return the method and the window of each layer."""
    layers = MethodSpec.parse(name).over(LAYERS)
    return [(layer.name, layer.window) for layer in layers]


def test_windows_and_layers_match_transformers():
    transformers = pytest.importorskip("transformers")
    cohere = transformers.Cohere2Config(num_hidden_layers=LAYERS)
    expected = []
    for kind in cohere.layer_types:  # Cohere2 rotates in layers with a window only
        slides = kind == "sliding_attention"
        expected.append(("rotary", cohere.sliding_window) if slides else ("none", 0))
    assert pattern("rnope_swa") == expected

    smol = transformers.SmolLM3Config(num_hidden_layers=LAYERS)
    assert pattern("smollm3") == [
        ("rotary" if rotates else "none", 0) for rotates in smol.no_rope_layers
    ]

    llama = transformers.Llama4TextConfig(num_hidden_layers=LAYERS)
    chunk = llama.attention_chunk_size
    assert pattern("llama4") == [
        ("rotary", chunk) if rotates else ("none", 0) for rotates in llama.no_rope_layers
    ]

    gemma = transformers.Gemma3TextConfig(num_hidden_layers=LAYERS)
    windows = {"sliding_attention": gemma.sliding_window, "full_attention": 0}
    assert pattern("gemma3") == [("rotary", windows[kind]) for kind in gemma.layer_types]


def test_options_replace_those_of_a_pattern():
    spec = MethodSpec.parse("swan/attention_window=64+64+64+0/rotary_base=500000")
    assert spec.windows == (64, 64, 64, 0)
    assert spec.score_scaling == "logn"
    assert spec.label.startswith("3 × Rotary, base 500000 (window 64) + No positions")


def test_patterns_are_no_methods():
    assert MODEL_PATTERNS.keys().isdisjoint(METHODS)
    with pytest.raises(UserInputError, match="no position method 'rnope'"):
        MethodSpec.parse("rnope/rotary_base=5")
