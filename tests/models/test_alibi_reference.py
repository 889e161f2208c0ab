"""Our model against the authors' published formula on stock fairseq, in float64."""

from __future__ import annotations

import pytest
import torch
from conftest import build_model, random_tokens, small_model

from alibi_fairseq.positions import alibi_slopes

TRAIN_LENGTH = 32


def authors_model(ours, heads: int):
    """Stock fairseq with the mask of the authors' code: slope × key index, −inf in the future.

    It takes our weights as they are, which also shows that the parameter names are fairseq's.
    """
    shape = ["--decoder-layers", "2", "--decoder-attention-heads", str(heads)]
    shape += ["--decoder-embed-dim", str(8 * heads), "--decoder-input-dim", str(8 * heads)]
    shape += ["--decoder-output-dim", str(8 * heads), "--decoder-ffn-embed-dim", "64"]
    shape += ["--decoder-normalize-before", "--share-decoder-input-output-embed"]
    model = build_model(
        "--arch", "transformer_lm", "--no-token-positional-embeddings", *shape
    ).double()
    model.load_state_dict(ours.state_dict())

    def mask(x):  # x: (T, B, C)
        length, batch, _ = x.shape
        future = torch.full((length, length), -torch.inf, dtype=x.dtype).triu(1)
        bias = alibi_slopes(heads).double()[:, None, None] * torch.arange(length)  # (H, 1, T)
        return (future + bias).repeat(batch, 1, 1)  # (B·H, T, T)

    model.decoder.buffered_future_mask = mask
    return model.eval()


@pytest.mark.parametrize("backend", ["eager", "sdpa"])
@pytest.mark.parametrize("length", [TRAIN_LENGTH, 16 * TRAIN_LENGTH])
@pytest.mark.parametrize("heads", [1, 2, 8, 12, 16])
def test_logits_and_gradients_equal_the_authors_formula(heads, length, backend):
    ours = small_model("alibi", "--attention-backend", backend, heads=heads)
    reference = authors_model(ours, heads)
    tokens = random_tokens(2, length)

    logits, expected = ours(tokens)[0], reference(tokens)[0]
    torch.testing.assert_close(logits.double(), expected, rtol=0, atol=1e-5)

    direction = torch.randn_like(expected) / length
    (logits.double() * direction).sum().backward()
    (expected * direction).sum().backward()
    for (name, ours_p), (_, ref_p) in zip(ours.named_parameters(), reference.named_parameters()):
        torch.testing.assert_close(
            ours_p.grad.double(),
            ref_p.grad,
            rtol=1e-4,
            atol=1e-5,
            msg=lambda m, n=name: f"{n}: {m}",
        )


def test_the_reference_notices_a_missing_bias():
    ours = small_model("none")
    tokens = random_tokens(1, TRAIN_LENGTH)
    assert (ours(tokens)[0].double() - authors_model(ours, 8)(tokens)[0]).abs().max() > 1e-2
