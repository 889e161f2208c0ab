"""Blocks in plain PyTorch compared with the layers of a decoder with the same weights."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from conftest import random_tokens, small_model

from alibi_fairseq.attention import start_of_each_document
from alibi_fairseq.blocks import BlockOptions, TransformerBlock, embed_positions
from alibi_fairseq.models.config import AlibiLanguageModelConfig
from alibi_fairseq.positions import METHODS

#: Flags of the decoder, and the options of the block.
BLOCKS = {
    "paper": ("", BlockOptions()),
    "rms": ("--normalization rms --rms-norm-eps 0.1", BlockOptions("rms", rms_norm_eps=0.1)),
    "swiglu": ("--ffn swiglu", BlockOptions(ffn="swiglu")),
    "grouped": ("--key-value-heads 2", BlockOptions()),
    "normalized": ("--normalize-queries-keys", BlockOptions(normalize_queries_keys=True)),
    "no-biases": ("--no-linear-biases", BlockOptions(linear_biases=False)),
    "modern": (
        "--normalization rms --ffn swiglu --key-value-heads 4 --normalize-queries-keys "
        "--no-linear-biases",
        BlockOptions("rms", "swiglu", True, False),
    ),
}


def random_decoder(method: str, flags: str, **kwargs):
    """Return a decoder whose parameters differ from their initial values."""
    if method == "learned":
        flags += " --clamp-learned-positions"
    model = small_model(method, *flags.split(), **kwargs)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model.decoder


def same_blocks(decoder, options: BlockOptions) -> list[TransformerBlock]:
    """Return blocks with the weights, the positions, and the score scaling of a decoder."""
    blocks = []
    for index, layer in enumerate(decoder.layers):
        block = TransformerBlock(decoder.embed_positions, index, 64, options, decoder.score_scale)
        missing, unexpected = block.load_state_dict(layer.state_dict(), strict=False)
        assert not unexpected
        assert all(".positions." in name or ".score_scale." in name for name in missing)
        blocks.append(block)
    return blocks


def run(decoder, blocks, tokens, caches=None, state=None, start=0, **mask_options):
    """Return the output of all blocks after the final norm, (B, T, C), and the caches."""
    x = decoder.embed_scale * decoder.embed_tokens(tokens)
    x = embed_positions(decoder.embed_positions, x, start)
    new_caches = []
    for index, block in enumerate(blocks):
        cache = caches[index] if caches else None
        earlier = state[index].transpose(0, 1) if state else None  # (B, M, C)
        x, cache = block(x, cache, earlier, **mask_options)
        new_caches.append(cache)
    return decoder.layer_norm(x), new_caches


def assert_equals_decoder(decoder, options: BlockOptions) -> None:
    """Compare one pass and cached parts, past the training length."""
    blocks = same_blocks(decoder, options)
    tokens = random_tokens(2, 40)
    expected, _ = decoder.extract_features(tokens)
    whole, _ = run(decoder, blocks, tokens)
    torch.testing.assert_close(whole, expected, rtol=0, atol=2e-5)
    parts = []
    caches = None
    for start, stop in ((0, 25), (25, 39), (39, 40)):
        part, caches = run(decoder, blocks, tokens[:, start:stop], caches, start=start)
        parts.append(part)
    torch.testing.assert_close(torch.cat(parts, 1), expected, rtol=0, atol=2e-5)


def test_options_are_those_of_models():
    for field in dataclasses.fields(BlockOptions):
        assert getattr(AlibiLanguageModelConfig, field.name) == field.default


@pytest.mark.parametrize("block", BLOCKS)
@torch.no_grad()
def test_every_part_equals_decoder(block):
    flags, options = BLOCKS[block]
    assert_equals_decoder(random_decoder("rotary", flags), options)


@pytest.mark.parametrize("scaling", ["none", "logn", "ssmax"])
@pytest.mark.parametrize("block", ["paper", "modern"])
@pytest.mark.parametrize("method", [*sorted(METHODS), "rotary,fox", "bam,none"])
@torch.no_grad()
def test_every_method_equals_decoder(method, block, scaling):
    flags, options = BLOCKS[block]
    decoder = random_decoder(method, f"{flags} --score-scaling {scaling}")
    assert_equals_decoder(decoder, options)


@pytest.mark.parametrize("block", ["paper", "modern"])
@torch.no_grad()
def test_memory_equals_decoder(block):
    flags, options = BLOCKS[block]
    decoder = random_decoder("transformer_xl", f"{flags} --mem-len 12", sequential=True)
    state = decoder(random_tokens(2, 20))[1]["state"]
    tokens = random_tokens(2, 9)
    expected, _ = decoder.extract_features(tokens, state=state)
    output, _ = run(decoder, same_blocks(decoder, options), tokens, state=state)
    torch.testing.assert_close(output, expected, rtol=0, atol=2e-5)


@torch.no_grad()
def test_documents_and_windows_equal_decoder():
    flags, options = BLOCKS["modern"]
    decoder = random_decoder("alibi", f"{flags} --attention-window 6 --block-diagonal eos")
    tokens = random_tokens(2, 40)
    tokens[0, 17] = 2
    expected, _ = decoder.extract_features(tokens)
    starts = start_of_each_document(tokens, 2, "eos")
    blocks = same_blocks(decoder, options)
    output, _ = run(decoder, blocks, tokens, window=6, document_start=starts)
    torch.testing.assert_close(output, expected, rtol=0, atol=2e-5)
