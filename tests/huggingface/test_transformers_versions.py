"""Export, ``from_pretrained``, and ``generate`` with the installed transformers.

Run this file against any version within the range of ``setup.py``.
"""

from __future__ import annotations

import pytest
import torch
from conftest import random_tokens
from exported import BLOOM, converted, perturbed
from transformers import AutoModelForCausalLM

from alibi_fairseq.huggingface.export import save

PAD = 1
MODELS = [("alibi", BLOOM), ("alibi", ""), ("rotary", ""), ("t5", "--attention-window 9")]


@pytest.mark.parametrize("method, flags", MODELS)
@pytest.mark.filterwarnings("error::FutureWarning")
@torch.no_grad()
def test_cached_generation_equals_full_passes(method, flags, tmp_path):
    original = converted(perturbed(method, flags, noise=0.2), method, 32).model
    save(original, tmp_path / "exported")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "exported", trust_remote_code=True)
    prompts = [random_tokens(1, length) for length in (9, 3)]
    padded = torch.cat(
        [torch.nn.functional.pad(p, (9 - p.shape[1], 0), value=PAD) for p in prompts]
    )
    # Small random models repeat one token, which would hide a wrong cache.
    different = {"no_repeat_ngram_size": 1, "suppress_tokens": [PAD]}
    options = {"do_sample": False, "max_new_tokens": 20, "min_new_tokens": 20, **different}
    batch = model.generate(padded, attention_mask=padded.ne(PAD).long(), **options)
    for prompt, row in zip(prompts, batch):
        cached = model.generate(prompt, **options)
        uncached = model.generate(prompt, use_cache=False, **options)
        assert cached.tolist() == uncached.tolist()
        assert row[9:].tolist() == cached[0, prompt.shape[1] :].tolist()
    assert len(set(batch[0, 9:].tolist())) == 20
