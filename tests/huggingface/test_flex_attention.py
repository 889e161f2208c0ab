"""Exported models with transformers' ``flex_attention``."""

from __future__ import annotations

import pytest
import torch
from conftest import random_tokens
from exported import converted, perturbed
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask

from alibi_fairseq.huggingface.modeling_alibi_lm import eager_attention_forward


def test_flex_attention_is_rejected_on_cpu():
    model = converted(perturbed("alibi"), "alibi").model
    model.set_attn_implementation("flex_attention")
    with pytest.raises(ValueError, match="On a CPU, flex_attention returns wrong values"):
        model(random_tokens(1, 16))


def attention_of_each_sequence(module, query, key, value, mask, position_bias, **options):
    """Compute attention with a bias per sequence, which FlexAttention reads by index."""
    biases = [position_bias[number] for number in range(len(query))]
    return eager_attention_forward(
        module, query, key, value, mask, position_bias=torch.stack(biases), **options
    )


@pytest.mark.parametrize("method", ["alibi", "t5"])
@torch.no_grad()
def test_each_sequence_has_a_bias(method):
    AttentionInterface.register("each_sequence", attention_of_each_sequence)
    AttentionMaskInterface.register("each_sequence", eager_mask)
    model = converted(perturbed(method), method).model
    tokens = random_tokens(3, 16)
    model.set_attn_implementation("eager")
    expected = model(tokens).logits
    model.set_attn_implementation("each_sequence")
    torch.testing.assert_close(model(tokens).logits, expected, rtol=0, atol=1e-6)
