"""Export, ``from_pretrained``, and ``generate`` with the installed transformers.

Run this file and ``test_attention_interface.py`` with any version in the range of ``setup.py``. The
exported models in the formats ``alibi_lm`` and BLOOM, ``-k "not rotary and not interface"``, also
pass with 5.4.0 and 5.10.1.
"""

from __future__ import annotations

import pytest
import torch
from conftest import random_tokens
from exported import BLOOM, converted, perturbed
from test_attention_interface import MODELS as INTERFACE_MODELS
from test_attention_interface import models_of
from torch.nn.functional import pad
from transformers import AutoModelForCausalLM, StaticCache

from alibi_fairseq.huggingface.attention import register
from alibi_fairseq.huggingface.export import save_model
from alibi_fairseq.huggingface.modeling_alibi_lm import CACHE

PAD = 1
MODELS = [
    ("alibi", BLOOM),
    ("alibi", ""),
    ("rotary", ""),
    ("t5", "--attention-window 9"),
    ("transformer_xl", ""),
]

pytestmark = pytest.mark.filterwarnings("error::FutureWarning")


def left_padded(prompts):
    """Return the token IDs, (B, T), and the attention mask, (B, T), of prompts, (1, T) each."""
    longest = max(prompt.shape[1] for prompt in prompts)
    rows = [pad(prompt, (longest - prompt.shape[1], 0), value=PAD) for prompt in prompts]
    tokens = torch.cat(rows)
    return tokens, tokens.ne(PAD).long()


def saved_and_loaded(model, method, folder):
    """Convert a model, save it, and load the copy that users get."""
    save_model(converted(model, method, 32).model, folder)
    return AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True)


@pytest.mark.parametrize(("method", "flags"), MODELS)
@torch.no_grad()
def test_logits_equal_the_checkpoint(method, flags, tmp_path):
    """Test each row of a padded batch, and tokens read in parts, against the decoder."""
    original = perturbed(method, flags, noise=0.2)
    model = saved_and_loaded(original, method, tmp_path / "exported")
    prompts = [random_tokens(1, length) for length in (70, 33)]
    tokens, mask = left_padded(prompts)
    padded = model(tokens, attention_mask=mask).logits
    for prompt, row in zip(prompts, padded, strict=True):
        expected = original(prompt)[0]
        torch.testing.assert_close(row[None, -prompt.shape[1] :], expected, rtol=0, atol=3e-5)
        cache = None
        logits = []
        for part in prompt.split((20, 1, prompt.shape[1] - 21), dim=1):
            output = model(part, **{CACHE: cache}, use_cache=True)
            cache = output[CACHE]
            logits.append(output.logits)
        torch.testing.assert_close(torch.cat(logits, 1), expected, rtol=0, atol=3e-5)


@pytest.mark.parametrize(
    ("method", "flags"), [("alibi", ""), ("rotary", ""), ("transformer_xl", "")]
)
@torch.no_grad()
def test_static_cache_equals_no_cache(method, flags, tmp_path):
    model = saved_and_loaded(perturbed(method, flags, noise=0.2), method, tmp_path / "exported")
    tokens = random_tokens(1, 20)
    cache = StaticCache(config=model.config, max_cache_len=40)
    prompt = model(tokens[:, :19], **{CACHE: cache}, use_cache=True).logits
    last = model(tokens[:, 19:], **{CACHE: cache}, use_cache=True).logits
    expected = model(tokens, use_cache=False).logits
    torch.testing.assert_close(torch.cat([prompt, last], 1), expected, rtol=0, atol=1e-5)


@pytest.mark.ci
@pytest.mark.parametrize(("method", "flags"), MODELS)
@torch.no_grad()
def test_cached_generation_equals_full_passes(method, flags, tmp_path):
    model = saved_and_loaded(perturbed(method, flags, noise=0.2), method, tmp_path / "exported")
    check_cached_generation(model)


@pytest.mark.ci
@pytest.mark.parametrize("name", INTERFACE_MODELS)
@torch.no_grad()
def test_cached_generation_with_the_attention_interface(name):
    register()
    check_cached_generation(models_of(name, vocab_size=64)[0])  # as in random_tokens


def check_cached_generation(model):
    """Test tokens generated with a cache against full passes, also of padded rows."""
    prompts = [random_tokens(1, length) for length in (9, 3)]
    tokens, mask = left_padded(prompts)
    # Small random models repeat one token, which would hide a wrong cache.
    varied = {"no_repeat_ngram_size": 1, "suppress_tokens": [PAD]}
    options = {"do_sample": False, "max_new_tokens": 20, "min_new_tokens": 20, **varied}
    batch = model.generate(tokens, attention_mask=mask, **options)
    for prompt, row in zip(prompts, batch, strict=True):
        cached = model.generate(prompt, **options)
        uncached = model.generate(prompt, use_cache=False, **options)
        assert cached.tolist() == uncached.tolist()
        assert row[9:].tolist() == cached[0, prompt.shape[1] :].tolist()
    assert len(set(batch[0, 9:].tolist())) == 20
