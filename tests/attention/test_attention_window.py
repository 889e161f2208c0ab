"""``--attention-window W``: attention to the last W keys, in every backend that supports it."""

from __future__ import annotations

import pytest
import torch
from attention_calls import Call
from conftest import random_tokens, small_model
from torch.nn.functional import scaled_dot_product_attention

from alibi_fairseq.attention import BACKENDS, FutureMask, attend
from alibi_fairseq.errors import BadInput
from alibi_fairseq.positions import METHODS

WINDOW = 100


def reference(call: Call, window: int) -> torch.Tensor:
    """torch's attention in float64 with an explicit mask of shape (T, S)."""
    q, k, v, _ = (x.double() for x in call.tensors())
    keys = torch.arange(call.length + call.cached)
    distance = keys[call.cached :, None] - keys
    visible = (distance >= 0) & (distance < window)
    bias = call.bias()
    term = torch.zeros(1, 1, 1) if bias is None else bias.block(q, k, call.cached)
    return scaled_dot_product_attention(q, k, v, term.masked_fill(~visible, -torch.inf).double())


def supporting(call: Call, mask: FutureMask) -> list[str]:
    q, k, v, _ = call.tensors()
    return [n for n, b in BACKENDS.items() if b.unsupported_reason(q, k, v, mask, 0.0) is None]


@pytest.mark.parametrize("cached", [0, 70])
@pytest.mark.parametrize("method", ["alibi", "none", "t5", "transformer_xl"])
@pytest.mark.parametrize("window", [1, 128, 200])
@torch.no_grad()
def test_every_backend_that_supports_it_is_exact(method, cached, window):
    call = Call(method=method, cached=cached, batch=1)
    q, k, v, _ = call.tensors()
    torch.manual_seed(0)  # learned biases start random
    expected = reference(call, window)
    torch.manual_seed(0)
    mask = call.mask(window)
    names = supporting(call, mask)
    assert {"eager", "sdpa"} <= set(names) and not {"fold", "skipping"} & set(names)
    assert ("flex" in names) == (method in ("alibi", "none"))
    names = [name for name in names if name != "flex"]  # which takes seconds to compile
    for name in [*names, "auto"]:
        found, _ = attend(q, k, v, mask, backend=name, strict=True)
        torch.testing.assert_close(found.double(), expected, rtol=0, atol=1e-5)


def test_flash_is_given_the_window(monkeypatch):
    from alibi_fairseq.attention import flash

    seen = []
    kernel = lambda *args, window_size, **kwargs: seen.append(window_size) or args[0]  # noqa: E731
    monkeypatch.setattr(flash, "_kernel", lambda: kernel)
    call = Call(dtype=torch.bfloat16)
    q, k, v, _ = call.tensors()
    for window in (WINDOW, 0):
        flash.attend(q, k, v, call.mask(window), 0.0)
    # flash-attn: keys from i − left to i + right; −1 is no limit, and causal makes right 0.
    assert seen == [(WINDOW - 1, -1), (-1, -1)]


@pytest.mark.parametrize("method", sorted(METHODS))
@torch.no_grad()
def test_one_layer_sees_the_last_tokens_only(method):
    model = small_model(method, "--decoder-layers", "1", "--attention-window", "5")
    tokens = random_tokens(1, 20)
    changed = tokens.clone()
    changed[:, 9] = tokens[:, 9] % 10 + 5  # another word
    assert changed[0, 9] != tokens[0, 9]
    moved = (model(tokens)[0] - model(changed)[0]).abs().amax(-1)[0] > 1e-6
    assert moved.nonzero().flatten().tolist() == [9, 10, 11, 12, 13]


@torch.no_grad()
def test_cached_decoding_and_the_last_positions_use_the_window():
    model, tokens, state = small_model("alibi", "--attention-window", "5"), random_tokens(2, 30), {}
    whole = model(tokens)[0]
    chunks = [model.decoder(tokens[:, :end], incremental_state=state)[0] for end in (1, 2, 17, 30)]
    torch.testing.assert_close(torch.cat(chunks, 1), whole, rtol=0, atol=1e-5)
    features = model.decoder.extract_features(tokens, last=3)[0]
    torch.testing.assert_close(model.decoder.output_layer(features), whole[:, -3:])


def test_a_negative_window_is_bad_input():
    with pytest.raises(BadInput, match="--attention-window must be 0 or more, not -1"):
        small_model("alibi", "--attention-window", "-1")
