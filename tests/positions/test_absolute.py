"""Sinusoidal and learned positions against stock fairseq with the same weights."""

from __future__ import annotations

import ast
import json
import re

import pytest
import torch
from conftest import build_model, random_tokens, small_model
from torch.nn.functional import cross_entropy

from alibi_fairseq.errors import BadInput

TRAIN_LENGTH = 32


def stock_model(method: str, heads: int, longest: int):
    shape = ["--decoder-layers", "2", "--decoder-attention-heads", str(heads)]
    shape += ["--decoder-embed-dim", str(8 * heads), "--decoder-input-dim", str(8 * heads)]
    shape += ["--decoder-output-dim", str(8 * heads), "--decoder-ffn-embed-dim", "64"]
    shape += ["--decoder-normalize-before", "--share-decoder-input-output-embed"]
    shape += ["--decoder-learned-pos"] if method == "learned" else []
    return build_model("--arch", "transformer_lm", *shape, tokens_per_sample=longest)


@pytest.mark.parametrize("heads", [1, 12])
@pytest.mark.parametrize("method,length", [("learned", 32), ("learned", 5), ("sinusoidal", 256)])
def test_loss_and_gradients_equal_stock_fairseq(method, length, heads):
    ours = small_model(method, heads=heads, tokens_per_sample=TRAIN_LENGTH).double()
    stock = stock_model(method, heads, max(length, TRAIN_LENGTH)).double().eval()
    # A sinusoidal module has one entry that is no parameter; all else must fit by name and shape.
    missing, unexpected = stock.load_state_dict(ours.state_dict(), strict=False)
    assert not unexpected and set(missing) <= {"decoder.embed_positions._float_tensor"}

    tokens = random_tokens(3, length)
    tokens[1, length // 2 :] = 1  # right padding
    tokens[2, : length // 3] = 1  # left padding
    targets = tokens.roll(-1, dims=1).masked_fill(tokens == 1, 1)
    losses = [
        cross_entropy(model(tokens)[0].flatten(0, 1), targets.flatten(), ignore_index=1)
        for model in (ours, stock)
    ]
    assert losses[0].item() == pytest.approx(losses[1].item(), abs=1e-6)
    for loss in losses:
        loss.backward()
    theirs = dict(stock.named_parameters())
    for name, parameter in ours.named_parameters():
        torch.testing.assert_close(parameter.grad, theirs[name].grad, rtol=1e-4, atol=1e-6)


def test_learned_table_has_fairseqs_name_and_start():
    table = dict(small_model("learned").named_parameters())["decoder.embed_positions.weight"]
    assert table.shape == (TRAIN_LENGTH + 2, 64)
    assert table[1].abs().max() == 0
    assert table[2:].std().item() == pytest.approx(64**-0.5, rel=0.1)


def test_past_the_learned_table_the_length_is_named():
    model = small_model("learned")
    model(random_tokens(1, TRAIN_LENGTH))
    with pytest.raises(BadInput, match="length of 32 tokens.*a sequence has 33") as error:
        model(random_tokens(1, TRAIN_LENGTH + 1))
    ours, fairseqs = re.findall(r"""'(\{".*?\})'|"(\{'.*?\})\"""", str(error.value))
    advised = {"clamp_learned_positions": True}
    assert json.loads(ours[0]) == ast.literal_eval(fairseqs[1]) == advised


@torch.no_grad()
def test_clamping_repeats_the_last_position():
    model = small_model("learned", "--clamp-learned-positions")
    positions = torch.tensor([[0, 30, 31, 32, 500, -1]])
    rows = model.decoder.embed_positions.weight
    expected = torch.stack([rows[2], rows[32], rows[33], rows[33], rows[33], rows[1]])
    assert torch.equal(model.decoder.embed_positions.embed(positions)[0], expected)
    assert model(random_tokens(1, 100))[0].isfinite().all()


@torch.no_grad()
def test_clamping_changes_nothing_inside_the_table():
    plain, clamped = small_model("learned"), small_model("learned", "--clamp-learned-positions")
    clamped.load_state_dict(plain.state_dict())
    tokens = random_tokens(2, TRAIN_LENGTH)
    assert torch.equal(plain(tokens)[0], clamped(tokens)[0])
