"""T5's buckets and bias against published examples and Hugging Face's T5Attention."""

from __future__ import annotations

import pytest
import torch
from attention_calls import assert_same_gradients
from transformers import T5Config
from transformers.models.t5.modeling_t5 import T5Attention

from alibi_fairseq.attention import FutureMask, attend
from alibi_fairseq.positions import PositionConfig, build_position_method
from alibi_fairseq.positions.t5 import BucketBias, relative_position_bucket

BATCH, LENGTH, HEAD_DIM = 2, 300, 4


def relative_positions(length: int) -> torch.Tensor:
    steps = torch.arange(length)
    return steps[None, :] - steps[:, None]  # key − query


def test_published_examples():
    both = relative_position_bucket(relative_positions(10), True, 32, 128)
    assert both[0].tolist() == [0, 17, 18, 19, 20, 21, 22, 23, 24, 24]
    assert both[9].tolist() == [8, 8, 7, 6, 5, 4, 3, 2, 1, 0]
    causal = relative_position_bucket(relative_positions(10), False, 32, 128)
    assert causal[9].tolist() == [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]
    assert causal.triu(1).abs().max() == 0
    assert causal[5, :6].tolist() == [5, 4, 3, 2, 1, 0]


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("num_buckets,max_distance", [(32, 128), (32, 512), (8, 20), (64, 1000)])
def test_buckets_equal_those_of_hugging_face(bidirectional, num_buckets, max_distance):
    positions = torch.arange(-3000, 3001)
    ours = relative_position_bucket(positions, bidirectional, num_buckets, max_distance)
    theirs = T5Attention._relative_position_bucket(
        positions, bidirectional, num_buckets, max_distance
    )
    assert torch.equal(ours, theirs)
    assert ours.min() == 0 and ours.max() == num_buckets - 1


def hugging_face(heads: int, decoder: bool) -> T5Attention:
    config = T5Config(
        d_model=heads * HEAD_DIM, d_kv=HEAD_DIM, num_heads=heads, is_decoder=decoder, dropout_rate=0
    )
    config._attn_implementation = "eager"
    module = T5Attention(config, has_relative_attention_bias=True, layer_idx=0).double()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return module.eval()


def heads_of(x: torch.Tensor, heads: int) -> torch.Tensor:
    return x.view(BATCH, LENGTH, heads, HEAD_DIM).transpose(1, 2)  # (B, H, T, D)


def compare(module: T5Attention, ours, theirs) -> None:
    """Values, and gradients of every parameter of their module, which ours shares."""
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)
    assert_same_gradients(ours, theirs, list(module.parameters()))


@pytest.mark.parametrize("backend", ["eager", "sdpa"])
@pytest.mark.parametrize("heads", [1, 12])
def test_causal_attention_equals_hugging_face(heads, backend):
    module = hugging_face(heads, decoder=True)
    x = torch.randn(BATCH, LENGTH, heads * HEAD_DIM, dtype=torch.float64)
    future = torch.full((1, 1, LENGTH, LENGTH), -torch.inf, dtype=torch.float64).triu(1)
    theirs = module(x, mask=future)[0]

    # T5 does not scale q·k; our attention does, so undo it beforehand.
    q = heads_of(module.q(x) * HEAD_DIM**0.5, heads)
    k, v = heads_of(module.k(x), heads), heads_of(module.v(x), heads)
    mask = FutureMask(BucketBias(module.relative_attention_bias), LENGTH, LENGTH)
    output, _ = attend(q, k, v, mask, backend=backend)
    compare(module, module.o(output.transpose(1, 2).flatten(2)), theirs)


@pytest.mark.parametrize("heads", [1, 12])
def test_bidirectional_buckets_make_hugging_face_encoder_attention(heads):
    module = hugging_face(heads, decoder=False)
    x = torch.randn(BATCH, LENGTH, heads * HEAD_DIM, dtype=torch.float64)
    theirs = module(x)[0]

    q, k, v = (heads_of(layer(x), heads) for layer in (module.q, module.k, module.v))
    buckets = relative_position_bucket(relative_positions(LENGTH), bidirectional=True)
    bias = module.relative_attention_bias(buckets).permute(2, 0, 1)  # (H, T, T)
    output = torch.softmax(q @ k.transpose(2, 3) + bias, dim=-1) @ v
    compare(module, module.o(output.transpose(1, 2).flatten(2)), theirs)


def test_one_table_is_shared_by_all_layers():
    config = PositionConfig(embed_dim=64, num_heads=8, num_layers=5, train_length=16)
    method = build_position_method("t5", config)
    assert {name: tuple(p.shape) for name, p in method.named_parameters()} == {
        "relative_attention_bias.weight": (32, 8)
    }
    assert method.bias(0, 10) == method.bias(4, 10)
