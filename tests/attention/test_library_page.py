"""Documented examples of attention without fairseq, compared with the decoder's layers."""

from __future__ import annotations

import re

import pytest
import torch
from commands import ROOT, as_process
from conftest import random_tokens, small_model

from alibi_fairseq.positions import METHODS

#: Requirements of the package other than torch, which the core must not import.
HIDDEN = (
    "fairseq",
    "fairseq_cli",
    "hydra",
    "matplotlib",
    "numpy",
    "omegaconf",
    "psutil",
    "pydantic",
    "sacremoses",
    "sentencepiece",
    "tensorboard",
    "tensorboardX",
    "tqdm",
)
HIDE = f"import sys; sys.modules.update(dict.fromkeys({HIDDEN}))\n"
PAGE = (ROOT / "docs" / "attention-and-losses.md").read_text()
EXAMPLES = [
    (ROOT / "examples" / "torch_layer.py").read_text(),
    *re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL),
]

CHECKS = [
    # Against torch's own layer with a dense mask: ALiBi is −slope · distance, slopes 1/2 … 1/256.
    """
distance = torch.arange(128)[:, None] - torch.arange(128)
slopes = 2.0 ** -torch.arange(1, 9)
dense = (-slopes[:, None, None] * distance).masked_fill(distance < 0, -torch.inf)
y = start
for layer in layers:
    y = nn.TransformerEncoderLayer.forward(layer, y, src_mask=dense.repeat(4, 1, 1))
torch.testing.assert_close(x, y, rtol=0, atol=1e-5)
x.sum().backward()
assert layers[0].self_attn.in_proj_weight.grad is not None
""",
    """
torch.manual_seed(0)
config = PositionConfig(64, 8, num_layers=2, train_length=128)
attention = CausalAttention(build_position_method("fox", config), 1).eval()
x = torch.randn(2, 40, 64)
whole, _ = attention(x)
moved = x.clone()
moved[:, -1] += 1
torch.testing.assert_close(attention(moved)[0][:, :-1], whole[:, :-1])
""",
]


def test_examples_run_without_fairseq():
    code = HIDE + "".join(example + check for example, check in zip(EXAMPLES, CHECKS, strict=True))
    code = code.replace("x = torch.randn(4, 128, 64)", "start = x = torch.randn(4, 128, 64)")
    process = as_process("-c", code + "\nprint('done')")
    assert process.stdout == "done\n", process.stderr[-1500:]


def recorded_calls(decoder, *args, **kwargs) -> list[dict]:
    """Run a decoder; return the input, the context, and the output of each layer's attention."""
    calls: list[dict] = []

    def record(module, inputs, keywords, output):
        x = keywords["query"]  # (T, B, C)
        calls.append({"x": x, "context": keywords["attn_mask"], "output": output[0]})

    hooks = [
        layer.self_attn.register_forward_hook(record, with_kwargs=True) for layer in decoder.layers
    ]
    decoder(*args, **kwargs)
    for hook in hooks:
        hook.remove()
    return calls


def documented_attention(page, decoder, layer: int):
    """Return the page's module with the weights of a decoder layer."""
    module = page["CausalAttention"](decoder.embed_positions, layer, decoder.score_scale)
    for name, prefix in (("query", "q"), ("key", "k"), ("value", "v"), ("out", "out")):
        projection = getattr(decoder.layers[layer].self_attn, f"{prefix}_proj")
        getattr(module, name).load_state_dict(projection.state_dict())
    return module.eval()


def randomize_zero_parameters(model):
    """Replace zero parameters of the position method, so that it changes the output."""
    for parameter in model.decoder.embed_positions.parameters():
        if not parameter.any():
            torch.nn.init.normal_(parameter, std=0.5)
    return model


@pytest.fixture(scope="module")
def page() -> dict:
    """Return the definitions of the documented module."""
    definitions: dict = {}
    exec(EXAMPLES[1], definitions)
    return definitions


@pytest.mark.parametrize("scaling", ["none", "logn", "ssmax"])
@pytest.mark.parametrize("method", [*sorted(METHODS), "rotary,fox", "bam,none"])
@torch.no_grad()
def test_documented_module_equals_decoder_layer(page, method, scaling):
    """Compare one pass and cached parts, with the input embeddings, past the training length."""
    options = ["--score-scaling", scaling]
    if method == "learned":
        options.append("--clamp-learned-positions")
    decoder = randomize_zero_parameters(small_model(method, *options)).decoder
    tokens = random_tokens(2, 40)
    calls = recorded_calls(decoder, tokens)

    tokens_only = decoder.embed_scale * decoder.embed_tokens(tokens)
    embedded = page["embed_positions"](decoder.embed_positions, tokens_only)
    later = page["embed_positions"](decoder.embed_positions, tokens_only[:, 25:], start=25)
    first_input = decoder.layers[0].self_attn_layer_norm(embedded)
    torch.testing.assert_close(first_input.transpose(0, 1), calls[0]["x"], rtol=0, atol=1e-6)
    torch.testing.assert_close(later, embedded[:, 25:], rtol=0, atol=1e-6)

    for layer, call in enumerate(calls):
        attention = documented_attention(page, decoder, layer)
        x = call["x"].transpose(0, 1)  # (B, T, C)
        expected = call["output"].transpose(0, 1)
        output, _ = attention(x)
        torch.testing.assert_close(output, expected, rtol=0, atol=1e-5)
        parts = []
        cache = None
        for start, stop in ((0, 25), (25, 39), (39, 40)):
            part, cache = attention(x[:, start:stop], cache)
            parts.append(part)
        torch.testing.assert_close(torch.cat(parts, 1), expected, rtol=0, atol=1e-5)


@torch.no_grad()
def test_documented_module_attends_to_memory(page):
    model = small_model("transformer_xl", "--mem-len", "12", sequential=True)
    decoder = model.decoder
    memory = decoder(random_tokens(2, 20))[1]["memory"]
    calls = recorded_calls(decoder, random_tokens(2, 9), memory=memory)
    for layer, call in enumerate(calls):
        layer_memory = call["context"].memory.transpose(0, 1)  # (B, M, C)
        assert layer_memory.shape == (2, 12, 64)
        attention = documented_attention(page, decoder, layer)
        output, _ = attention(call["x"].transpose(0, 1), memory=layer_memory)
        expected = call["output"].transpose(0, 1)
        torch.testing.assert_close(output, expected, rtol=0, atol=1e-5)
