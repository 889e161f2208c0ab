"""The WikiText-103 recipes against literal values of the authors' command and architecture.

https://github.com/ofirpress/attention_with_linear_biases (README, ``transformer_lm_wiki103``). The
values are written out here because recipes and models are generated from the same objects.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
MODEL = {
    **{"_name": "alibi_lm_wiki103", "decoder_layers": 16, "decoder_embed_dim": 1024},
    **{"decoder_ffn_embed_dim": 4096, "decoder_attention_heads": 8},
    **{"dropout": 0.3, "attention_dropout": 0.1, "activation_dropout": 0.1},
    **{"adaptive_softmax_dropout": 0.2, "adaptive_softmax_cutoff": "20000,60000"},
    "adaptive_input_cutoff": "20000,60000",
}
OPTIMIZATION = {"clip_norm": 0.1, "lr": [1.0], "max_update": 286000, "stop_min_lr": 1e-9}


@pytest.mark.parametrize("name", ["alibi-512", "sinusoidal-1024", "t5-512", "rotary-3072"])
def test_published_values(name):
    recipe = yaml.safe_load((ROOT / "configs" / "wikitext-103" / f"{name}.yaml").read_text())
    assert {key: recipe["model"].get(key) for key in MODEL} == MODEL
    assert {key: recipe["optimization"].get(key) for key in OPTIMIZATION} == OPTIMIZATION
    assert recipe["common"]["seed"] == 1 and recipe["common"]["fp16"] is True
    assert recipe["task"]["sample_break_mode"] == "none"
    assert recipe["criterion"]["_name"] == "adaptive_loss"
