"""ALiBi, sinusoidal and learned positions against stock fairseq with the same weights.

Stock fairseq gets ALiBi from the mask of the authors' code: slope × key index, −inf in the future.
"""

from __future__ import annotations

import ast
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
    """It takes our weights as they are, so that all names and shapes must be fairseq's."""
    shape = ["--decoder-layers", "2", "--decoder-attention-heads", str(heads)]
    shape += ["--decoder-embed-dim", str(8 * heads), "--decoder-input-dim", str(8 * heads)]
    shape += ["--decoder-output-dim", str(8 * heads), "--decoder-ffn-embed-dim", "64"]
    shape += ["--decoder-normalize-before", "--share-decoder-input-output-embed"]
    shape += ["--decoder-learned-pos"] if method == "learned" else []
    shape += ["--no-token-positional-embeddings"] if method == "alibi" else []
    model = build_model("--arch", "transformer_lm", *shape, tokens_per_sample=longest).double()
    missing, unexpected = model.load_state_dict(ours.state_dict(), strict=False)
    # A sinusoidal module has one entry that is no parameter.
    assert not unexpected and set(missing) <= {"decoder.embed_positions._float_tensor"}

    def mask(x):  # x: (T, B, C)
        length, batch, _ = x.shape
        future = torch.full((length, length), -torch.inf, dtype=x.dtype).triu(1)
        bias = alibi_slopes(heads).double()[:, None, None] * torch.arange(length)  # (H, 1, T)
        return (future + bias).repeat(batch, 1, 1)  # (B·H, T, T)

    if method == "alibi":
        model.decoder.buffered_future_mask = mask
    return model.eval()


@pytest.mark.parametrize(
    "method, heads, length, backend",
    [
        *(("learned", heads, length, "auto") for heads in (1, 12) for length in (5, 32)),
        *(("sinusoidal", heads, 256, "auto") for heads in (1, 12)),
        *(("alibi", h, n, b) for h in (1, 8, 12) for n in (32, 512) for b in ("eager", "sdpa")),
    ],
)
def test_loss_and_gradients_equal_stock_fairseq(method, heads, length, backend):
    flags = ["--attention-backend", backend]
    ours = small_model(method, *flags, heads=heads, tokens_per_sample=TRAIN_LENGTH).double()
    stock = stock_model(ours, method, heads, max(length, TRAIN_LENGTH))
    tokens = random_tokens(3, length)
    tokens[1, length // 2 :] = 1  # right padding
    if method != "alibi":  # the authors count keys from the start of a row
        tokens[2, : length // 3] = 1
    targets = tokens.roll(-1, dims=1).masked_fill(tokens == 1, 1)
    scores = [model(tokens)[0] for model in (ours, stock)]
    real = tokens != 1
    torch.testing.assert_close(scores[0][real], scores[1][real], rtol=0, atol=1e-5)
    for of_model in scores:
        cross_entropy(of_model.flatten(0, 1), targets.flatten(), ignore_index=1).backward()
    theirs = dict(stock.named_parameters())
    for name, parameter in ours.named_parameters():
        torch.testing.assert_close(parameter.grad, theirs[name].grad, rtol=1e-4, atol=1e-6)


def test_comparison_detects_missing_bias():
    ours, tokens = small_model("none").double(), random_tokens(1, TRAIN_LENGTH)
    theirs = stock_model(ours, "alibi", 8, TRAIN_LENGTH)
    assert (ours(tokens)[0] - theirs(tokens)[0]).abs().max() > 1e-2


def test_learned_positions_initialize_as_in_fairseq():
    table = small_model("learned").decoder.embed_positions.weight
    assert table[1].abs().max() == 0
    assert table[2:].std().item() == pytest.approx(64**-0.5, rel=0.1)


def test_learned_positions_reject_longer_inputs():
    model = small_model("learned")
    with pytest.raises(UserInputError, match="length of 32 tokens.*a sequence has 33") as error:
        model(random_tokens(1, TRAIN_LENGTH + 1))
    ours, fairseqs = re.findall(r"""'(\{".*?\})'|"(\{'.*?\})\"""", str(error.value))
    advised = {"clamp_learned_positions": True}
    assert json.loads(ours[0]) == ast.literal_eval(fairseqs[1]) == advised


@torch.no_grad()
def test_clamping_repeats_the_last_position():
    plain, clamped = small_model("learned"), small_model("learned", "--clamp-learned-positions")
    clamped.load_state_dict(plain.state_dict())
    positions = torch.tensor([[0, 30, 31, 32, 500, -1]])
    rows = clamped.decoder.embed_positions.weight
    expected = torch.stack([rows[2], rows[32], rows[33], rows[33], rows[33], rows[1]])
    assert torch.equal(clamped.decoder.embed_positions.embed(positions)[0], expected)
    tokens = random_tokens(2, TRAIN_LENGTH)
    assert torch.equal(plain(tokens)[0], clamped(tokens)[0])
    assert clamped(random_tokens(1, 100))[0].isfinite().all()
