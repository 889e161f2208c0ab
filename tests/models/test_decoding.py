"""Cached keys, padding and the last positions alone change nothing of a full forward pass."""

from __future__ import annotations

import pytest
import torch
from conftest import FIRST_WORD, random_tokens, small_model

from alibi_fairseq.positions import METHODS

PAD = 1
EOS = 2
LONGEST = 40
VARIANTS = [(method,) for method in sorted(METHODS)]
VARIANTS += [
    (m, "--score-scaling", kind) for m in ("alibi", "rotary", "fox") for kind in ("logn", "ssmax")
]
VARIANTS += [
    ("rotary", "--rotary-scaling", f"{kind}:4") for kind in ("pi", "ntk", "yarn", "llama3")
]
VARIANTS += [
    ("rotary", "--rotary-percent", "0.5", "--rotary-base", "500"),
    ("rotary", "--p-rope", "0.5"),
]
VARIANTS += [("alibi", "--attention-window", "5"), ("alibi", "--alibi-slopes", "trainable")]
VARIANTS += [
    ("rotary,none", "--attention-window", "5,0", "--decoder-layers", "3"),
    ("fox,alibi,fire", "--attention-window", "0,7", "--decoder-layers", "3"),
]
VARIANTS += [(method, "--block-diagonal", "eos") for method in ("alibi", "sinusoidal")]


@pytest.fixture(params=VARIANTS, ids=" ".join)
def model(request):
    """Everything except a learned table is used past its training length."""
    method, *flags = request.param
    model = small_model(method, *flags, tokens_per_sample=LONGEST if method == "learned" else 16)
    # Biases that start near zero, and factors that start equal, would hide mistakes.
    for parameter in model.decoder.embed_positions.parameters():
        if method in ("t5", "transformer_xl"):
            parameter.data.mul_(10)
        elif method in ("fox", "cope", "bam"):
            parameter.data.normal_(std=0.5)
    if "ssmax" in flags:
        for parameter in model.decoder.score_scale.parameters():
            parameter.data.mul_(torch.rand(parameter.shape) + 0.5)
    return model


def texts(batch: int, length: int = LONGEST) -> torch.Tensor:
    """Tokens of several documents."""
    tokens = random_tokens(batch, length)
    for begin in (0, 9, 11):
        tokens[:, begin : begin + 1] = EOS
    return tokens


def decode(model, tokens, ends):
    """Scores of all positions, computed in chunks that end at the given places."""
    state: dict = {}
    chunks = [model.decoder(tokens[:, :end], incremental_state=state)[0] for end in ends]
    return torch.cat(chunks, dim=1)


@torch.no_grad()
def test_cached_decoding_equals_the_full_pass(model):
    tokens = texts(3)
    for ends in (range(1, 41, 3), [7, 8, 30, 40]):
        torch.testing.assert_close(decode(model, tokens, ends), model(tokens)[0], rtol=0, atol=2e-5)


@pytest.mark.parametrize("side", ["left", "right"])
@torch.no_grad()
def test_padding_does_not_affect_real_tokens(model, side):
    rows = [texts(1, length) for length in (LONGEST, 33, 12, 1)]
    padded = torch.full((len(rows), LONGEST), PAD)
    spans = []
    for row, tokens in enumerate(rows):
        first = LONGEST - tokens.shape[1] if side == "left" else 0
        spans.append(slice(first, first + tokens.shape[1]))
        padded[row, spans[-1]] = tokens
    for scores in (model(padded)[0], decode(model, padded, [5, 6, 20, 40])):
        assert scores.isfinite().all()
        for row, tokens in enumerate(rows):
            alone = model(tokens)[0][0]
            torch.testing.assert_close(scores[row, spans[row]], alone, rtol=0, atol=2e-5)


@torch.no_grad()
def test_last_limits_the_returned_features(model):
    tokens = texts(3)
    tokens[1, :6] = PAD
    everything, _ = model.decoder.extract_features(tokens)
    for last in (1, 3, 39, 40):
        some, _ = model.decoder.extract_features(tokens, last=last)
        torch.testing.assert_close(some, everything[:, -last:], rtol=1e-5, atol=2e-5)


@torch.no_grad()
def test_reordering_beams_reorders_the_cache(model):
    tokens = random_tokens(3, 12)
    order = torch.tensor([2, 0, 0])
    state = {}
    model.decoder(tokens[:, :11], incremental_state=state)
    model.decoder.reorder_incremental_state_scripting(state, order)
    mixed = tokens[order].clone()
    mixed[:, 11] = torch.tensor([FIRST_WORD, FIRST_WORD + 1, FIRST_WORD + 2])
    scores = model.decoder(mixed, incremental_state=state)[0]
    torch.testing.assert_close(scores[:, 0], model(mixed)[0][:, 11], rtol=0, atol=2e-5)


@torch.no_grad()
def test_last_skips_feed_forward_of_other_positions():
    decoder = small_model("alibi").decoder
    seen = []
    decoder.layers[-1].fc1.register_forward_hook(lambda _, args, out: seen.append(args[0].shape))
    decoder.extract_features(random_tokens(2, 20), last=3)
    assert seen == [(3, 2, 64)]


@torch.no_grad()
def test_memory_precedes_cached_positions():
    """With a bias by distance, the order of remembered and earlier states matters."""
    model = small_model("transformer_xl", "--mem-len", "10", sequential=True)
    for parameter in model.decoder.embed_positions.parameters():
        parameter.data.mul_(20)  # so that a wrong distance is visible
    _, extra = model.decoder(random_tokens(2, 7))
    tokens = random_tokens(2, 12)
    memory = extra["memory"]
    everything, _ = model.decoder.extract_features(tokens, memory=memory)
    for last in (1, 4):
        some, _ = model.decoder.extract_features(tokens, memory=memory, last=last)
        torch.testing.assert_close(some, everything[:, -last:], rtol=1e-5, atol=1e-5)
