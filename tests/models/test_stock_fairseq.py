"""ALiBi, sinusoidal, and learned positions compared with stock fairseq with the same weights.

Stock fairseq computes ALiBi with the authors' mask: slope × key index, and −inf in the future.
"""

from __future__ import annotations

import ast
import itertools
import json
import re

import pytest
import torch
from conftest import build_model, random_tokens, small_model
from torch.nn.functional import cross_entropy

from alibi_fairseq.errors import UserInputError
from alibi_fairseq.positions import alibi_slopes

TRAIN_LENGTH = 32


def stock_model(ours, method: str, heads: int, longest: int):
    """Return fairseq's model with our weights, whose names and shapes it requires."""
    width = str(8 * heads)
    shape = ["--decoder-layers", "2", "--decoder-attention-heads", str(heads)]
    shape += ["--decoder-embed-dim", width, "--decoder-input-dim", width]
    shape += ["--decoder-output-dim", width, "--decoder-ffn-embed-dim", "64"]
    shape += ["--decoder-normalize-before", "--share-decoder-input-output-embed"]
    if method == "learned":
        shape.append("--decoder-learned-pos")
    if method == "alibi":
        shape.append("--no-token-positional-embeddings")
    model = build_model("--arch", "transformer_lm", *shape, tokens_per_sample=longest).double()
    missing, unexpected = model.load_state_dict(ours.state_dict(), strict=False)
    assert not unexpected
    # A buffer of fairseq's sinusoidal embeddings.
    assert set(missing) <= {"decoder.embed_positions._float_tensor"}

    def future_mask(x):  # x: (T, B, C)
        length, batch, _ = x.shape
        future = torch.full((length, length), -torch.inf, dtype=x.dtype).triu(1)
        bias = alibi_slopes(heads).double()[:, None, None] * torch.arange(length)  # (H, 1, T)
        return (future + bias).repeat(batch, 1, 1)  # (B·H, T, T)

    if method == "alibi":
        model.decoder.buffered_future_mask = future_mask
    return model.eval()


@pytest.mark.ci
@pytest.mark.parametrize(
    ("method", "heads", "length", "backend"),
    [
        ("learned", 1, 5, "auto"),
        ("learned", 1, 32, "auto"),
        ("learned", 12, 5, "auto"),
        ("learned", 12, 32, "auto"),
        ("sinusoidal", 1, 256, "auto"),
        ("sinusoidal", 12, 256, "auto"),
        *itertools.product(["alibi"], [1, 8, 12], [32, 512], ["eager", "sdpa"]),
    ],
)
def test_scores_and_gradients_match_stock_fairseq(method, heads, length, backend):
    flags = ["--attention-backend", backend]
    ours = small_model(method, *flags, heads=heads, tokens_per_sample=TRAIN_LENGTH).double()
    stock = stock_model(ours, method, heads, max(length, TRAIN_LENGTH))
    tokens = random_tokens(3, length)
    tokens[1, length // 2 :] = 1  # right padding
    if method != "alibi":  # the authors count keys from the start of a row
        tokens[2, : length // 3] = 1
    targets = tokens.roll(-1, dims=1).masked_fill(tokens == 1, 1)
    our_scores = ours(tokens)[0]
    stock_scores = stock(tokens)[0]
    real = tokens != 1
    torch.testing.assert_close(our_scores[real], stock_scores[real], rtol=0, atol=1e-5)
    for scores in (our_scores, stock_scores):
        cross_entropy(scores.flatten(0, 1), targets.flatten(), ignore_index=1).backward()
    stock_parameters = dict(stock.named_parameters())
    for name, parameter in ours.named_parameters():
        expected = stock_parameters[name].grad
        torch.testing.assert_close(parameter.grad, expected, rtol=1e-4, atol=1e-6)


def test_comparison_detects_missing_bias():
    ours = small_model("none").double()
    tokens = random_tokens(1, TRAIN_LENGTH)
    stock = stock_model(ours, "alibi", 8, TRAIN_LENGTH)
    assert (ours(tokens)[0] - stock(tokens)[0]).abs().max() > 1e-2


def test_learned_positions_initialize_as_in_fairseq():
    table = small_model("learned").decoder.embed_positions.weight
    assert table[1].abs().max() == 0
    assert table[2:].std().item() == pytest.approx(64**-0.5, rel=0.1)


def test_learned_positions_reject_longer_inputs():
    model = small_model("learned")
    with pytest.raises(UserInputError, match="length of 32 tokens.*a sequence has 33") as error:
        model(random_tokens(1, TRAIN_LENGTH + 1))
    message = str(error.value)
    (for_our_eval,) = re.findall(r"""'(\{".*?\})'""", message)
    (for_fairseq,) = re.findall(r"""\"(\{'.*?\})\"""", message)
    advised = {"clamp_learned_positions": True}
    assert json.loads(for_our_eval) == advised
    assert ast.literal_eval(for_fairseq) == advised


@torch.no_grad()
def test_clamping_repeats_last_position():
    plain = small_model("learned")
    clamped = small_model("learned", "--clamp-learned-positions")
    clamped.load_state_dict(plain.state_dict())
    positions = torch.tensor([[0, 30, 31, 32, 500, -1]])
    weight = clamped.decoder.embed_positions.weight
    expected = weight[[2, 32, 33, 33, 33, 1]]
    assert torch.equal(clamped.decoder.embed_positions.embed(positions)[0], expected)
    tokens = random_tokens(2, TRAIN_LENGTH)
    assert torch.equal(plain(tokens)[0], clamped(tokens)[0])
    assert clamped(random_tokens(1, 100))[0].isfinite().all()


@torch.no_grad()
def test_inner_states_match_stock_fairseq():
    ours = small_model("sinusoidal", heads=2, tokens_per_sample=TRAIN_LENGTH).double().eval()
    stock = stock_model(ours, "sinusoidal", 2, TRAIN_LENGTH)
    tokens = random_tokens(2, 16)
    states = []
    for model in (ours, stock):
        _, extra = model.decoder(tokens, return_all_hiddens=True)
        states.append(extra["inner_states"])
    assert len(states[0]) == 3  # two layers
    torch.testing.assert_close(*states)
