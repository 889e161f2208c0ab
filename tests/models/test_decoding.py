"""Decoding with cached keys, with padding, and of the last positions, compared with full passes."""

from __future__ import annotations

import pytest
import torch
from conftest import FIRST_WORD, random_tokens, small_model

from alibi_fairseq.positions import METHODS

PAD = 1
EOS = 2
LONGEST = 40
#: Position methods with options.
VARIANTS = [(method,) for method in sorted(METHODS)]
for method in ("alibi", "rotary", "fox"):
    VARIANTS.append((method, "--score-scaling", "logn"))
    VARIANTS.append((method, "--score-scaling", "ssmax"))
VARIANTS += [
    ("rotary", "--rotary-scaling", "pi:4"),
    ("rotary", "--rotary-scaling", "ntk:4"),
    ("rotary", "--rotary-scaling", "yarn:4"),
    ("rotary", "--rotary-scaling", "llama3:4"),
    ("rotary", "--rotary-percent", "0.5", "--rotary-base", "500"),
    ("rotary", "--p-rope", "0.5"),
    ("alibi", "--attention-window", "5"),
    ("alibi", "--alibi-slopes", "trainable"),
    ("rotary,none", "--attention-window", "5,0", "--decoder-layers", "3"),
    ("fox,alibi,fire", "--attention-window", "0,7", "--decoder-layers", "3"),
    ("alibi", "--block-diagonal", "eos"),
    ("sinusoidal", "--block-diagonal", "eos"),
]
#: All parts of the modern block.
MODERN = "--normalization rms --ffn swiglu --key-value-heads 2 --normalize-queries-keys"
for method in ("alibi", "rotary", "transformer_xl", "cope", "fox", "learned"):
    VARIANTS.append((method, *MODERN.split(), "--no-linear-biases"))
VARIANTS.append(("fox", *MODERN.split(), "--attention-window", "5", "--block-diagonal", "eos"))


@pytest.fixture(params=VARIANTS, ids=" ".join)
def model(request):
    """Return a model that is used past its training length, except with learned positions."""
    method, *flags = request.param
    train_length = LONGEST if method == "learned" else 16
    model = small_model(method, *flags, tokens_per_sample=train_length)
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


def random_documents(batch: int, length: int = LONGEST) -> torch.Tensor:
    """Return sequences of up to three documents each."""
    tokens = random_tokens(batch, length)
    for start in (0, 9, 11):
        tokens[:, start : start + 1] = EOS
    return tokens


def decode(model, tokens, ends):
    """Return the scores of all positions, computed in chunks that end at these positions."""
    state: dict = {}
    chunks = [model.decoder(tokens[:, :end], incremental_state=state)[0] for end in ends]
    return torch.cat(chunks, dim=1)


@pytest.mark.parametrize("ends", [range(1, 41, 3), [7, 8, 30, 40]], ids=str)
@torch.no_grad()
def test_cached_decoding_matches_full_pass(model, ends):
    tokens = random_documents(3)
    expected = model(tokens)[0]
    torch.testing.assert_close(decode(model, tokens, ends), expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize("side", ["left", "right"])
@torch.no_grad()
def test_padding_does_not_affect_real_tokens(model, side):
    lengths = (LONGEST, 33, 12, 1)
    sequences = [random_documents(1, length) for length in lengths]
    padded = torch.full((len(sequences), LONGEST), PAD)
    spans = []
    for row, length in enumerate(lengths):
        start = LONGEST - length if side == "left" else 0
        span = slice(start, start + length)
        padded[row, span] = sequences[row]
        spans.append(span)
    for scores in (model(padded)[0], decode(model, padded, [5, 6, 20, 40])):
        assert scores.isfinite().all()
        for row, tokens in enumerate(sequences):
            expected = model(tokens)[0][0]
            torch.testing.assert_close(scores[row, spans[row]], expected, rtol=0, atol=2e-5)


@torch.no_grad()
def test_last_features_match_full_pass(model):
    tokens = random_documents(3)
    tokens[1, :6] = PAD
    expected, _ = model.decoder.extract_features(tokens)
    for last in (1, 3, 39, 40):
        features, _ = model.decoder.extract_features(tokens, last=last)
        torch.testing.assert_close(features, expected[:, -last:], rtol=1e-5, atol=2e-5)


@torch.no_grad()
def test_reordering_beams_reorders_cache(model):
    tokens = random_tokens(3, 12)
    order = torch.tensor([2, 0, 0])
    state: dict = {}
    model.decoder(tokens[:, :11], incremental_state=state)
    model.decoder.reorder_incremental_state_scripting(state, order)
    reordered = tokens[order].clone()
    reordered[:, 11] = torch.tensor([FIRST_WORD, FIRST_WORD + 1, FIRST_WORD + 2])
    scores = model.decoder(reordered, incremental_state=state)[0]
    torch.testing.assert_close(scores[:, 0], model(reordered)[0][:, 11], rtol=0, atol=2e-5)


@torch.no_grad()
def test_last_skips_feed_forward_of_other_positions():
    decoder = small_model("alibi").decoder
    shapes = []

    def record_shape(module, inputs, output):
        shapes.append(inputs[0].shape)

    decoder.layers[-1].fc1.register_forward_hook(record_shape)
    decoder.extract_features(random_tokens(2, 20), last=3)
    assert shapes == [(3, 2, 64)]


@torch.no_grad()
def test_last_features_with_memory_match_full_pass():
    """The bias depends on the distance, so memory must precede the states of this pass."""
    model = small_model("transformer_xl", "--mem-len", "10", sequential=True)
    for parameter in model.decoder.embed_positions.parameters():
        parameter.data.mul_(20)  # so that a wrong distance is visible
    _, extra = model.decoder(random_tokens(2, 7))
    state = extra["state"]
    tokens = random_tokens(2, 12)
    expected, _ = model.decoder.extract_features(tokens, state=state)
    for last in (1, 4):
        features, _ = model.decoder.extract_features(tokens, state=state, last=last)
        torch.testing.assert_close(features, expected[:, -last:], rtol=1e-5, atol=1e-5)
