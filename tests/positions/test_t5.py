"""T5's buckets and bias compared with Hugging Face's T5Attention."""

from __future__ import annotations

import pytest
import torch
from attention_calls import assert_same_gradients
from transformers import T5Config
from transformers.models.t5.modeling_t5 import T5Attention

from alibi_fairseq.attention import FutureMask, attend
from alibi_fairseq.positions.t5 import BucketBias, find_bucket

BATCH = 2
LENGTH = 300
HEAD_DIM = 4


@pytest.mark.parametrize("max_distance", [20, 128, 512])
def test_buckets_match_hugging_face(max_distance):
    distance = torch.arange(3000)
    expected = T5Attention._relative_position_bucket(-distance, False, 32, max_distance)
    assert torch.equal(find_bucket(distance, max_distance), expected)
    assert expected.max() == 31


@pytest.mark.parametrize("backend", ["eager", "sdpa"])
@pytest.mark.parametrize("heads", [1, 12])
def test_causal_attention_matches_hugging_face(heads, backend):
    width = heads * HEAD_DIM
    config = T5Config(
        d_model=width, d_kv=HEAD_DIM, num_heads=heads, is_decoder=True, dropout_rate=0
    )
    config._attn_implementation = "eager"
    module = T5Attention(config, has_relative_attention_bias=True, layer_idx=0).double().eval()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    x = torch.randn(BATCH, LENGTH, width, dtype=torch.float64)
    future = torch.full((1, 1, LENGTH, LENGTH), -torch.inf, dtype=torch.float64).triu(1)
    expected = module(x, mask=future)[0]

    def split_heads(projected):
        return projected.view(BATCH, LENGTH, heads, HEAD_DIM).transpose(1, 2)  # (B, H, T, D)

    # T5 does not scale q·k; our attention does, so undo it beforehand.
    q = split_heads(module.q(x) * HEAD_DIM**0.5)
    k = split_heads(module.k(x))
    v = split_heads(module.v(x))
    mask = FutureMask(BucketBias(module.relative_attention_bias), LENGTH, LENGTH)
    head_outputs, _ = attend(q, k, v, mask, backend=backend)
    output = module.o(head_outputs.transpose(1, 2).flatten(2))
    torch.testing.assert_close(output, expected, rtol=0, atol=1e-6)
    assert_same_gradients(output, expected, list(module.parameters()))
