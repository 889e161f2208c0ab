"""Attention weights, half precision, dropout, masks, and state dict of the model."""

from __future__ import annotations

import functools

import pytest
import torch
from conftest import build_model, random_tokens, small_model
from fairseq.dataclass.configs import EMAConfig
from fairseq.models.ema.ema import EMA

from alibi_fairseq.attention import FutureMask
from alibi_fairseq.models.decoder import hidden_padding
from alibi_fairseq.models.self_attention import AttentionContext
from alibi_fairseq.positions.alibi import LinearBias

TINY = ["--arch", "alibi_lm_tiny"]


def test_model_returns_attention_weights():
    model = small_model("alibi")
    attention = model.decoder.layers[0].self_attn
    x = torch.randn(9, 2, 64)  # (T, B, C)
    mask = FutureMask(LinearBias(8), num_queries=9, num_keys=9)
    context = AttentionContext(mask, model.decoder.embed_positions)
    _, averaged = attention(x, x, x, attn_mask=context, need_weights=True)
    _, per_head = attention(x, x, x, attn_mask=context, need_head_weights=True)
    assert averaged.shape == (2, 9, 9)
    assert per_head.shape == (8, 2, 9, 9)
    torch.testing.assert_close(averaged, per_head.mean(0))
    torch.testing.assert_close(averaged.sum(-1), torch.ones(2, 9))
    assert averaged.triu(1).abs().max() == 0


@pytest.mark.parametrize("backend", ["auto", "eager"])
def test_layers_have_backend_of_option(backend):
    model = small_model("alibi", "--attention-backend", backend)
    assert {layer.self_attn.backend for layer in model.decoder.layers} == {backend}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_is_close_past_training_length(dtype):
    model = small_model("alibi")
    tokens = random_tokens(1, 1024)
    expected = model(tokens)[0]
    scores = model.to(dtype)(tokens)[0]
    assert scores.dtype == dtype
    assert (scores.float() - expected).abs().max() < 0.02 * expected.abs().max()


@pytest.mark.parametrize("option", ["attention-dropout", "activation-dropout", "decoder-layerdrop"])
def test_dropout_applies_only_in_training(option):
    model = build_model(*TINY, "--dropout", "0", f"--{option}", "0.5")
    tokens = random_tokens(1, 16)
    model.train()
    outputs = set()
    for _ in range(16):
        scores, _ = model(tokens)
        outputs.add(tuple(scores[0, -1].tolist()))
    if option == "decoder-layerdrop":
        assert 2 <= len(outputs) <= 8  # three layers have eight subsets
    else:
        assert len(outputs) == 16
    model.eval()
    assert torch.equal(model(tokens)[0], model(tokens)[0])
    if option == "decoder-layerdrop":
        model.train()
        dropped_fraction = sum(model.decoder._is_dropped() for _ in range(1000)) / 1000
        assert dropped_fraction == pytest.approx(0.5, abs=0.07)  # over 4 standard deviations


def test_padding_mask_is_dropped_for_trailing_padding():
    real = torch.tensor([[True, False, True], [True, True, True]])
    assert torch.equal(hidden_padding(real), ~real)
    assert hidden_padding(torch.tensor([[True, True, False]])) is None


def test_offloading_implies_checkpointing():
    layer = small_model("alibi", "--offload-activations").decoder.layers[0]
    assert isinstance(layer.forward, functools.partial)


def test_state_dict_has_no_uninitialized_tensor(monkeypatch):
    """Otherwise, the checkpoints of identical runs would differ."""
    monkeypatch.setattr(torch, "FloatTensor", lambda size: torch.full((size,), torch.nan))
    flags = "--adaptive-input --adaptive-input-cutoff 20,40 --adaptive-softmax-cutoff 20,40"
    flags += " --no-share-decoder-input-output-embed"
    state = small_model("alibi", *flags.split()).state_dict()
    assert "decoder.embed_tokens._float_tensor" in state
    assert all(tensor.isfinite().all() for tensor in state.values())


def test_moving_average_keeps_final_norm():
    model = small_model("alibi")
    average = EMA(model, EMAConfig(store_ema=True))
    average.step(model)
    tokens = random_tokens(1, 8)
    torch.testing.assert_close(average.get_model()(tokens)[0], model(tokens)[0])


def test_partial_weights_keep_final_norm():
    model = small_model("alibi")
    version = model.decoder.version.clone()
    model.load_state_dict({}, strict=False)
    assert model.decoder.layer_norm is not None
    assert torch.equal(model.decoder.version, version)
