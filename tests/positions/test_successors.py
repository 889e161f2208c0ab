"""ALiBi's successors compared with their formulas in float64, and with code of transformers."""

from __future__ import annotations

import itertools
import math
import re

import pytest
import torch
from commands import ROOT
from conftest import random_tokens, small_model
from torch.nn.functional import softplus
from transformers.models.inkling.modeling_inkling import InklingRelativeLogits

from alibi_fairseq.attention import FutureMask, attend
from alibi_fairseq.positions import PositionConfig, alibi_slopes, build_position_method
from alibi_fairseq.positions.alibi_reach import blind_distance, even_slopes, underflow_threshold

#: Largest difference relative to the largest expected number.
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2}
HEAD_DIM = 16
TRAIN_LENGTH = 32
LENGTH = 19
#: Cached tokens before the queries.
CACHED = 4
#: Distance from which on the bias of ``inkling`` is 0.
EXTENT = 11
TYPES = pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
HEADS = pytest.mark.parametrize("heads", [1, 6, 8])


def method(name: str, heads: int, **options):
    torch.manual_seed(6)
    config = PositionConfig(HEAD_DIM * heads, heads, 2, TRAIN_LENGTH)
    return build_position_method(name, config, **options)


def draw(heads: int, dtype: torch.dtype) -> list[torch.Tensor]:
    """Return queries, keys, values, and the gradient of the output."""
    torch.manual_seed(7)
    queries, gradient = 2 * torch.randn(2, 2, heads, LENGTH, HEAD_DIM)
    keys, values = 2 * torch.randn(2, 2, heads, LENGTH + CACHED, HEAD_DIM)
    return [x.to(dtype) for x in (queries, keys, values, gradient)]


def naive(q, k, v, score):
    """Attend with a function of q·k/√D, query, key, distance, and head, for each pair in turn."""
    outputs = []
    for head, t in itertools.product(range(q.shape[1]), range(q.shape[2])):
        i = k.shape[2] - q.shape[2] + t
        scores = []
        for j in range(i + 1):
            product = (q[:, head, t] * k[:, head, j]).sum(-1) / math.sqrt(q.shape[-1])
            scores.append(score(product, q[:, head, t], k[:, head, j], i - j, head))
        weights = torch.stack(scores, dim=-1).softmax(-1)
        outputs.append((weights[..., None] * v[:, head, : i + 1]).sum(1))
    return torch.stack(outputs, dim=1).unflatten(1, q.shape[1:3])


def assert_matches(module, heads, dtype, score, names=()):
    """Compare output and gradients in every backend that supports the bias of a module.

    Args:
        score: function of an exact copy of the parameters by name, then those of :func:`naive`.
        names: names of the parameters whose gradients are compared.
    """
    q, k, v, gradient = draw(heads, dtype)
    module = module.to(dtype)
    parameters = dict(module.named_parameters())
    exact = {name: parameters[name].detach().double().requires_grad_() for name in names}
    exact_inputs = [x.double().requires_grad_() for x in (q, k, v)]

    def exact_score(*arguments):
        return score(exact, *arguments)

    expected = naive(*exact_inputs, exact_score)
    of = [*exact_inputs, *exact.values()]
    right = [expected, *torch.autograd.grad(expected, of, gradient.double())]
    for backend in ("eager", "sdpa"):
        inputs = [x.clone().requires_grad_() for x in (q, k, v)]
        mask = FutureMask(module.bias(0, LENGTH + CACHED), LENGTH, LENGTH + CACHED)
        output, _ = attend(*inputs, mask, backend=backend, strict=True)
        of = [*inputs, *(parameters[name] for name in names)]
        results = [output, *torch.autograd.grad(output, of, gradient)]
        for result, true in zip(results, right, strict=True):
            error = (result.double() - true).abs().max() / true.abs().max()
            assert error < TOLERANCE[dtype]


#: Options, and the score that they give instead of ``product - slope * distance``.
REMEDIES = [
    ({"alibi_distance": "log"}, lambda s, m, d: s - m * math.log(1 + d)),
    ({"alibi_clamp": "2.5"}, lambda s, m, d: s + max(-m * d, -2.5)),
    ({"alibi_cap": "4"}, lambda s, m, d: 4 * torch.tanh((s - m * d) / 4)),
    (
        {"alibi_distance": "log", "alibi_clamp": "0.8", "alibi_cap": "4"},
        lambda s, m, d: 4 * torch.tanh((s + max(-m * math.log(1 + d), -0.8)) / 4),
    ),
]


@TYPES
@HEADS
@pytest.mark.parametrize(("options", "formula"), REMEDIES, ids=["log", "clamp", "cap", "all"])
def test_remedies_match_formula(options, formula, heads, dtype):
    slopes = alibi_slopes(heads).tolist()

    def score(exact, product, query, key, distance, head):
        return formula(product, slopes[head], distance)

    assert_matches(method("alibi", heads, **options), heads, dtype, score)


def test_remedies_train_slopes():
    module = method("alibi", 6, alibi_slopes="trainable", alibi_distance="log", alibi_cap="4")

    def score(exact, product, query, key, distance, head):
        slope = exact["log_slopes"][head].exp()
        return 4 * torch.tanh((product - slope * math.log(1 + distance)) / 4)

    assert_matches(module, 6, torch.float32, score, ["log_slopes"])


def test_remedies_divide_slopes():
    distance = torch.arange(50)
    half = method("alibi", 6, alibi_distance="log", alibi_scale="2").bias(0, 50).at(distance)
    expected = -alibi_slopes(6).double()[:, None] / 2 * distance.double().log1p()
    torch.testing.assert_close(half.double(), expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("heads", [1, 6, 8])
def test_even_slopes_spread_blind_distances(heads):
    bias = method("alibi", heads, alibi_slopes="even").bias(0, LENGTH)
    slopes = bias.slopes(torch.device("cpu"))
    distances = TRAIN_LENGTH * torch.arange(1, heads + 1) / heads
    at_these_distances = (slopes * distances).double()
    expected = torch.full((heads,), 133 * math.log(2), dtype=torch.float64)  # 2^-133 in bf16
    torch.testing.assert_close(at_these_distances, expected, rtol=1e-6, atol=0)
    assert slopes.tolist() == pytest.approx(even_slopes(heads, TRAIN_LENGTH))


@pytest.mark.parametrize(
    ("dtype", "smallest"),
    [(torch.float16, 2.0**-24), (torch.bfloat16, 2.0**-133), (torch.float32, 2.0**-149)],
    ids=str,
)
def test_blind_distance_is_where_weights_are_no_numbers(dtype, smallest):
    assert torch.tensor(smallest, dtype=dtype) > 0
    assert torch.tensor(smallest / 2, dtype=dtype) == 0
    assert underflow_threshold(dtype) == pytest.approx(math.log(smallest), abs=1e-12)
    for slope in alibi_slopes(8).tolist():
        blind = blind_distance(slope, dtype)
        assert math.exp(-slope * blind) < smallest <= math.exp(-slope * (blind - 1))


def test_documented_blind_distances():
    page = (ROOT / "docs" / "blind-distances.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| 1/(\d+) \| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \|$", page, re.MULTILINE)
    assert len(rows) == 8
    for (inverse, *cells), slope in zip(rows, alibi_slopes(8).tolist(), strict=True):
        assert 1 / int(inverse) == slope
        types = (torch.float16, torch.bfloat16, torch.float32)
        assert cells == [f"{blind_distance(slope, dtype):,}" for dtype in types]


@TYPES
@HEADS
def test_grape_matches_formula(heads, dtype):
    slopes = alibi_slopes(heads).tolist()

    def score(exact, product, query, key, distance, head):
        v = exact["layers.0.query_vectors"][head]
        u = exact["layers.0.key_vectors"][head]
        of_query = softplus(query @ (v / v.norm()) / math.sqrt(HEAD_DIM))
        of_key = softplus(key @ (u / u.norm()) / math.sqrt(HEAD_DIM))
        strength = slopes[head] * softplus(exact["layers.0.strength"][head])
        return product - distance * strength * (of_query + of_key)

    names = [f"layers.0.{name}" for name in ("strength", "query_vectors", "key_vectors")]
    assert_matches(method("grape_a_qk", heads), heads, dtype, score, names)


def test_grape_starts_with_slopes_of_alibi():
    grape = method("grape_a_qk", 6)
    q, k, *_ = draw(6, torch.float32)
    bias = grape.bias(1, LENGTH).block(torch.zeros_like(q), torch.zeros_like(k), CACHED)
    distance = torch.arange(CACHED, CACHED + LENGTH)[:, None] - torch.arange(CACHED + LENGTH)
    expected = -alibi_slopes(6)[:, None, None] * distance * 2 * math.log(2)  # softplus(0) twice
    torch.testing.assert_close(bias, expected.expand_as(bias))


@TYPES
@HEADS
def test_inkling_matches_transformers(heads, dtype):
    """Compare the bias of queries after cached tokens, and its gradients, with theirs."""
    module = method("inkling", heads, inkling_extent=EXTENT)
    layer = module.layers[1]
    torch.nn.init.normal_(layer.profiles)
    module = module.to(dtype)
    theirs = InklingRelativeLogits(16, EXTENT).double()
    theirs.load_state_dict({"proj": layer.profiles.detach().double()})
    x = torch.randn(LENGTH + CACHED, 2, HEAD_DIM * heads).to(dtype).requires_grad_()
    exact_x = x.detach().double().requires_grad_()
    weight = layer.mixing.weight.detach().double().requires_grad_()

    positions = torch.arange(LENGTH + CACHED)
    states = (exact_x @ weight.T).transpose(0, 1).unflatten(-1, (heads, 16))  # (B, S, H, 16)
    expected = theirs(states[:, CACHED:], positions[CACHED:], positions)
    q, k, *_ = draw(heads, dtype)
    bias = module.feature_bias(1, module.token_features(1, x)).block(q, k, CACHED)
    assert bias.dtype == torch.float32
    gradient = torch.randn_like(bias)
    results = torch.autograd.grad(bias, [x, layer.profiles, layer.mixing.weight], gradient)
    right = torch.autograd.grad(expected, [exact_x, theirs.proj, weight], gradient.double())
    for result, true in zip([bias, *results], [expected, *right], strict=True):
        error = (result.double() - true).abs().max() / true.abs().max()
        assert error < TOLERANCE[dtype]


#: Models that decode with cached keys.
MODELS = [
    ("alibi", "--alibi-distance", "log", "--alibi-clamp", "0.5", "--alibi-slopes", "even"),
    ("alibi", "--alibi-cap", "3"),
    ("grape_a_qk",),
    ("inkling", "--inkling-extent", "20"),
    ("inkling", "--inkling-extent", "20", "--key-value-heads", "2"),
]


@pytest.mark.parametrize("flags", MODELS, ids=str)
@torch.no_grad()
def test_cached_decoding_equals_full_pass(flags):
    model = small_model(*flags)
    for parameter in model.decoder.embed_positions.parameters():
        parameter.normal_(std=0.5)
    tokens = random_tokens(2, 40)
    state = {}
    parts = []
    for end in (1, 2, 17, 30, 40):
        parts.append(model.decoder(tokens[:, :end], incremental_state=state)[0])
    torch.testing.assert_close(torch.cat(parts, 1), model(tokens)[0], rtol=0, atol=1e-5)


def test_distances_beyond_training_keep_a_bias_near_zero():
    """The profiles of ``inkling`` start small, and a distance without gradient stays there."""
    module = method("inkling", 4)
    x = torch.randn(LENGTH, 2, HEAD_DIM * 4)
    q, k, *_ = draw(4, torch.float32)
    bias = module.feature_bias(0, module.token_features(0, x)).block(q, k[:, :, :LENGTH], 0)
    assert bias.abs().max() < 0.1
    bias.sum().backward()
    gradient = module.layers[0].profiles.grad
    assert gradient[:, :LENGTH].any()
    assert not gradient[:, LENGTH:].any()
