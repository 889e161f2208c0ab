"""``--block-diagonal`` and ``--attention-window``: a token sees its own document, and the last W tokens."""

from __future__ import annotations

import pytest
import torch
from attention_calls import Call, assert_close, results
from conftest import random_tokens, small_model
from torch.nn.attention.flex_attention import flex_attention

from alibi_fairseq.attention import BACKENDS, FutureMask, attend, document_starts, flash, flex
from alibi_fairseq.errors import BadInput
from alibi_fairseq.positions import METHODS

EOS, PAD = 2, 1


def reference(call: Call, window: int = 0):
    """Output and gradients in float64, one query at a time, from the keys it may see and no others."""
    q, k, v, grad = (x.double() for x in call.tensors())
    inputs = [x.requires_grad_() for x in (q, k, v)]
    bias, sequences = call.bias(), []
    starts = torch.zeros(call.batch, 999) if call.starts() is None else call.starts()
    for row in range(call.batch):
        q, k, v = (x[row : row + 1] for x in inputs)
        seen = []
        for query in range(call.length):
            place, one = call.cached + query, q[:, :, query : query + 1]
            first = max(int(starts[row, place]), place - window + 1 if window else 0)
            scores = one @ k[:, :, : place + 1].mT * call.width**-0.5  # (1, H, 1, K)
            if bias is not None:
                scores = scores + bias.block(one, k[:, :, : place + 1], place)
            seen.append(scores[..., first:].softmax(-1) @ v[:, :, first : place + 1])
        sequences.append(torch.cat(seen, 2))
    out = torch.cat(sequences)
    return [x.detach() for x in (out, *torch.autograd.grad(out, inputs, grad))]


def supporting(call: Call, mask: FutureMask) -> set[str]:
    q, k, v, _ = call.tensors()
    return {n for n, b in BACKENDS.items() if b.unsupported_reason(q, k, v, mask, 0.0) is None}


@pytest.mark.parametrize(
    "documents, window", [(True, 0), (True, 90), (False, 2), (False, 128), (False, 200)]
)
@pytest.mark.parametrize("cached", [0, 70])
@pytest.mark.parametrize("method", ["alibi", "none", "t5", "transformer_xl"])
def test_values_and_gradients_equal_the_reference(method, cached, documents, window):
    call = Call(method=method, cached=cached, heads=2, width=8, documents=documents)
    torch.manual_seed(0)  # learned biases start random
    expected = reference(call, window)
    for name in ("eager", "sdpa", "auto"):
        torch.manual_seed(0)
        assert_close(results(call, name, call.mask(window)), expected, 1e-5)


@pytest.mark.parametrize(
    "method, cached, window",
    [("alibi", 0, 0), ("alibi", 70, 0), ("none", 0, 0), ("alibi", 70, 150)],
)
def test_flex_equals_the_reference(method, cached, window, monkeypatch):
    """Not compiled, since the CPU's kernel cannot be; compiled on a GPU, in tests/gpu."""
    monkeypatch.setattr(flex, "flex_kernel", flex_attention)  # same arguments in the same order
    call = Call(method=method, cached=cached, heads=2, documents=True)
    q, k, v, _ = call.tensors()
    found = flex.attend(q, k, v, call.mask(window), 0.0)
    torch.testing.assert_close(found.double(), reference(call, window)[0], rtol=0, atol=1e-5)


@pytest.mark.parametrize("documents, window", [(True, 0), (True, 150), (False, 150)])
@pytest.mark.parametrize("cached", [0, 70])
def test_flex_visits_the_blocks_that_hold_a_visible_key_and_no_others(cached, documents, window):
    call = Call(cached=cached, length=600, documents=documents)
    keys, queries = torch.arange(600 + cached), torch.arange(cached, 600 + cached)
    distance = queries[:, None] - keys
    visible = (distance >= 0) & (distance < (window or 1000))
    starts = call.starts() if documents else torch.zeros(1, 600 + cached)
    visible = visible & (keys >= starts[:, cached:, None])  # (B, T, S)
    short = (-visible.shape[1] % flex.BLOCK, -visible.shape[2] % flex.BLOCK)
    blocks = torch.nn.functional.pad(visible, (0, short[1], 0, short[0]))
    blocks = blocks.unflatten(2, (-1, flex.BLOCK)).unflatten(1, (-1, flex.BLOCK)).any(4).any(2)
    found = flex.causal_blocks(call.mask(window), torch.device("cpu")).to_dense()[:, 0] > 0
    torch.testing.assert_close(found, blocks)


def test_dropout_is_that_of_the_reference():
    call, found = Call(documents=True), []
    for name in ("eager", "sdpa"):
        torch.manual_seed(3)
        found.append(results(call, name, call.mask(), 0.1))
    assert_close(found[1], found[0], 1e-5)


def test_backends_that_refuse_a_limit(monkeypatch):
    monkeypatch.setattr(flash, "_kernel", lambda: print)
    documents, window = Call(length=1024, batch=1, documents=True), Call(length=1024, batch=1)
    with torch.no_grad():
        assert supporting(documents, documents.mask()) == {"eager", "sdpa"}
        assert supporting(window, window.mask(100)) == {"eager", "sdpa", "flex"}
    q, k, v, _ = documents.tensors()
    for name in ("fold", "skipping", "flex"):
        with pytest.raises(BadInput, match=f"{name}.* does not support several documents"):
            attend(q, k, v, documents.mask(), backend=name, strict=True)


@pytest.mark.parametrize("separator", ["eos", "empty_line"])
def test_where_documents_begin(separator):
    tokens = torch.randint(EOS, EOS + 3, (4, 60))
    expected = []
    for row in tokens.tolist():
        begin, line = 0, []
        for place, token in enumerate(row):
            behind_another = place > 0 and row[place - 1] == EOS
            if token == EOS and (separator == "eos" or behind_another):
                begin = place
            line.append(begin)
        expected.append(line)
    assert document_starts(tokens, EOS, separator).tolist() == expected
    assert document_starts(tokens, EOS, "none") is None


def documents() -> list[torch.Tensor]:
    """(1, n) tokens each, behind the ``</s>`` that a text begins with."""
    return [
        torch.cat([torch.full((1, 1), EOS), random_tokens(1, length)], 1) for length in (9, 1, 14)
    ]


@pytest.mark.parametrize("method", sorted(METHODS))
@torch.no_grad()
def test_scores_are_those_of_each_document_alone(method):
    model = small_model(method, "--block-diagonal", "eos")
    texts = documents()
    alone = torch.cat([model(text)[0] for text in texts], 1)
    torch.testing.assert_close(model(torch.cat(texts, 1))[0], alone, rtol=0, atol=1e-5)
    plain = small_model(method)
    plain.load_state_dict(model.state_dict())
    assert (plain(torch.cat(texts, 1))[0] - alone).abs().max() > 1e-3


@torch.no_grad()
def test_an_empty_line_ends_a_document_of_several_lines():
    model = small_model("sinusoidal", "--block-diagonal", "empty_line")
    first, second, third = documents()
    of_two_lines = torch.cat([first, second, torch.tensor([[EOS]])], 1)
    found = model(torch.cat([of_two_lines, third], 1))[0]
    expected = torch.cat([model(of_two_lines)[0], model(third)[0]], 1)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("backend", ["eager", "sdpa", "auto"])
def test_a_window_of_one_key_is_the_value_of_the_token_itself(backend):
    call = Call(cached=70)
    q, k, v, _ = call.tensors()
    out, _ = attend(q, k, v, call.mask(1), backend=backend)
    torch.testing.assert_close(out, v[:, :, 70:])


def test_flash_is_given_the_window(monkeypatch):
    seen = []
    kernel = lambda *args, window_size, **kwargs: seen.append(window_size) or args[0]  # noqa: E731
    monkeypatch.setattr(flash, "_kernel", lambda: kernel)
    call = Call(dtype=torch.bfloat16)
    q, k, v, _ = call.tensors()
    for window in (100, 0):
        flash.attend(q, k, v, call.mask(window), 0.0)
    # flash-attn: keys from i − left to i + right; −1 is no limit, and causal makes right 0.
    assert seen == [(99, -1), (-1, -1)]


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


@pytest.mark.parametrize(
    "method, flags",
    [
        ("alibi", ["--block-diagonal", "lines"]),
        ("transformer_xl", ["--block-diagonal", "eos", "--mem-len", "8"]),
        ("alibi", ["--attention-window", "-1"]),
        ("alibi", ["--score-scaling", "log"]),
    ],
)
def test_bad_input(method, flags):
    with pytest.raises(BadInput, match=flags[0]):
        small_model(method, *flags, sequential="--mem-len" in flags)
