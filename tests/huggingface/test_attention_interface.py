"""Example of docs/checkpoints.md: a transformers model with the attention of this package."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest
import torch
from commands import ROOT
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    AutoModelForCausalLM,
    GPTNeoXConfig,
)
from transformers.models.gpt_neox.modeling_gpt_neox import eager_attention_forward

from alibi_fairseq.huggingface.positions_alibi_lm import alibi_slopes

PAD = 1
HEADS = 4


@pytest.fixture
def models(tmp_path, monkeypatch):
    """Return the documented model, and the same weights with eager attention."""
    config = GPTNeoXConfig(
        vocab_size=60,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        max_position_embeddings=64,
        rotary_pct=0.0,
        initializer_range=0.3,
        bos_token_id=2,
        eos_token_id=2,
        pad_token_id=PAD,
    )
    folder = tmp_path / "models" / "without-positions"
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    text = (ROOT / "docs" / "checkpoints.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (example,) = [block for block in blocks if "AttentionInterface" in block]
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec(example, names)
    eager = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
    return SimpleNamespace(documented=names["model"].eval(), eager=eager.eval())


def alibi_mask(length):
    """Return slope times distance, -inf at future keys, as a mask of transformers, (1, H, T, T)."""
    positions = torch.arange(length)
    distance = positions[:, None] - positions
    slopes = torch.tensor(alibi_slopes(HEADS, 8.0)).view(1, HEADS, 1, 1)
    return (-slopes * distance).masked_fill(distance < 0, -torch.inf)


@torch.no_grad()
def test_documented_attention_equals_eager_alibi(models):
    tokens = torch.randint(4, 60, (2, 20))
    expected = models.eager(tokens, attention_mask=alibi_mask(20)).logits
    logits = models.documented(tokens).logits
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-5)
    plain = models.eager(tokens).logits
    assert (plain - expected).abs().max() > 0.01


@torch.no_grad()
def test_documented_attention_hides_padding(models, monkeypatch):
    tokens = torch.randint(4, 60, (1, 20))
    padded = torch.nn.functional.pad(tokens, (5, 0), value=PAD)
    expected = models.documented(tokens).logits
    logits = models.documented(padded, attention_mask=padded.ne(PAD).long()).logits
    torch.testing.assert_close(logits[:, 5:], expected, rtol=0, atol=1e-5)
    # The documented warning: without its mask function, no mask arrives and nothing fails.
    monkeypatch.delitem(AttentionMaskInterface._global_mapping, "alibi_fairseq")
    without_mask = models.documented(padded, attention_mask=padded.ne(PAD).long()).logits
    assert (without_mask[:, 5:] - expected).abs().max() > 0.01


@torch.no_grad()
def test_unregistered_mask_drops_causality(models, monkeypatch):
    """Verify the documented warning with an attention function that relies on the mask."""
    tokens = torch.randint(4, 60, (1, 20))
    changed = tokens.clone()
    changed[0, -1] = 4 + (tokens[0, -1] - 3) % 56
    AttentionInterface.register("without_mask", eager_attention_forward)
    models.eager.set_attn_implementation("without_mask")
    first = models.eager(tokens).logits[:, 0]
    assert (models.eager(changed).logits[:, 0] - first).abs().max() > 1e-4
    models.eager.set_attn_implementation("eager")
    first = models.eager(tokens).logits[:, 0]
    torch.testing.assert_close(models.eager(changed).logits[:, 0], first, rtol=0, atol=0)


@torch.no_grad()
def test_documented_attention_generates_with_cache(models):
    prompt = torch.randint(4, 60, (1, 9))
    options = {"do_sample": False, "max_new_tokens": 15, "min_new_tokens": 15}
    cached = models.documented.generate(prompt, **options)
    uncached = models.documented.generate(prompt, use_cache=False, **options)
    assert cached.tolist() == uncached.tolist()
