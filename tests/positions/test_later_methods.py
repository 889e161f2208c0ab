"""KERPLE, Sandwich, xPos, FIRE, CoPE, and BAM compared with the formulas of their papers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from attention_calls import assert_same_gradients

from alibi_fairseq.attention import FutureMask
from alibi_fairseq.errors import UserInputError
from alibi_fairseq.positions import PositionConfig, build_position_method
from alibi_fairseq.positions.xpos import last_position

HEADS = [1, 12]
HEADS_AND_TYPES = pytest.mark.parametrize(
    "heads, dtype", [(1, torch.bfloat16), (12, torch.float32)], ids=str
)


def method(name: str, heads: int = 8, head_dim: int = 8):
    return build_position_method(name, PositionConfig(heads * head_dim, heads, 2, 16))


@pytest.mark.parametrize("heads", HEADS)
def test_kerple_matches_logarithmic_formula(heads):
    kerple = method("kerple", heads)
    distance = torch.arange(1000)
    bias = kerple.bias(1, 1000).at(distance)
    p = kerple.log_p.exp().double()
    a = kerple.log_a.exp().double()
    expected = torch.stack([-p[h] * (1 + a[h] * distance).log() for h in range(heads)])
    torch.testing.assert_close(bias.double(), expected, rtol=1e-5, atol=1e-6)
    assert_same_gradients(bias, expected, [kerple.log_p, kerple.log_a], tolerance=1e-4)
    many = method("kerple", heads=512, head_dim=2)  # they start in the ranges of its authors
    for start, largest in ((many.log_p.exp(), 2), (many.log_a.exp(), 1)):
        assert start.min() > 0.0099 and 0.95 * largest < start.max() <= largest


@pytest.mark.parametrize("heads", HEADS)
def test_sandwich_matches_sinusoidal_inner_product(heads):
    # The appendix of the paper computes it this way, for all pairs of positions.
    places = np.arange(300)[:, None] / 10000 ** (2 * np.arange(64) / 128)
    embeddings = np.concatenate([np.sin(places), np.cos(places)], axis=-1)  # (T, 128)
    products = torch.from_numpy(embeddings @ embeddings.T)
    ratios = torch.arange(1, heads + 1, dtype=torch.float64) * 8 / heads
    steps = torch.arange(300)
    bias = method("sandwich", heads).bias(0, 300).at((steps[:, None] - steps).abs())
    torch.testing.assert_close(
        bias.double(), products / ratios[:, None, None], rtol=1e-5, atol=1e-3
    )


@pytest.mark.parametrize("heads", [1, 12])
@pytest.mark.parametrize("start", [0, 700])
def test_xpos_scores_match_complex_formula(heads, start):
    size = 8
    length = 30
    q, k = torch.randn(2, 1, heads, length, size, dtype=torch.float64).requires_grad_()
    turned = method("xpos", heads, size).rotation(start, length, q.device)(q, k)
    ours = turned[0] @ turned[1].transpose(2, 3)

    pairs = torch.arange(size // 2, dtype=torch.float64)
    speeds = 10000.0 ** (-2 * pairs / size)
    fading = (2 * pairs / size + 0.4) / 1.4
    steps = torch.arange(length)
    distance = (steps[:, None] - steps)[..., None]  # (T, T, 1)
    factors = torch.polar(fading ** (distance / 512), distance * speeds)  # (T, T, D/2)
    as_complex = [torch.complex(x[..., : size // 2], x[..., size // 2 :]) for x in (q, k)]
    # A score is the real part of q · conjugate(k), turned and faded by the distance.
    theirs = torch.einsum("bhic,bhjc,ijc->bhij", as_complex[0], as_complex[1].conj(), factors).real
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-3)

    assert_same_gradients(ours, theirs, (q, k), tolerance=1e-3)


@pytest.mark.parametrize("dtype,about", [(torch.float16, 2550), (torch.bfloat16, 34300)])
def test_xpos_rejects_lengths_with_overflow(dtype, about):
    last = last_position(dtype)
    assert last == pytest.approx(about, rel=0.02)
    x = torch.full((1, 1, 1, 8), 64.0, dtype=dtype)
    rotated = method("xpos").rotation(last, 1, x.device)(x, x)
    assert all(y.isfinite().all() for y in rotated)
    with pytest.raises(UserInputError, match=f"limited to position {last}"):
        method("xpos").rotation(last + 1, 1, x.device)(x, x)


@HEADS_AND_TYPES
def test_fire_interpolates_over_context(heads, dtype):
    fire = build_position_method("fire", PositionConfig(8 * heads, heads, 2, 158)).to(dtype)
    layer = fire.layers[1]
    keys = 60
    queries = 35  # positions 25 to 59: the threshold is 39.5
    q, k = (torch.zeros(1, heads, n, 8, dtype=dtype) for n in (queries, keys))
    mask = FutureMask(fire.bias(1, keys), queries, keys)
    ours = mask.block(q, k, 0, torch.float32)
    assert ours.shape == (1, heads, queries, keys)

    c = layer.c.double().abs()
    threshold = layer.log_threshold.double().exp()
    assert threshold.item() == pytest.approx(39.5, rel=0.02)
    (inner, inner_bias), (outer, outer_bias) = (
        (linear.weight.double(), linear.bias.double()) for linear in (layer.hidden, layer.out)
    )
    expected = torch.full((1, heads, queries, keys), -torch.inf, dtype=torch.float64)
    for t in range(queries):
        i = keys - queries + t
        for j in range(i + 1):
            share = torch.log(c * (i - j) + 1) / torch.log(c * max(i, threshold) + 1)
            hidden = torch.relu(inner @ share + inner_bias)
            expected[0, :, t, j] = outer @ hidden + outer_bias
    torch.testing.assert_close(ours.double(), expected, rtol=1e-4, atol=1e-5)

    seen = expected.detach().isfinite()
    tolerance = 1e-4 if dtype == torch.float32 else 1e-2
    inputs = list(layer.parameters())
    assert_same_gradients(ours[seen], expected[seen], inputs, tolerance=tolerance)
    assert not [p for p in fire.layers[0].parameters() if p.grad is not None]


def test_fire_counts_positions_from_document_start():
    """Padding in front and other documents are no part of it."""
    fire = method("fire")
    padding = torch.zeros(2, 30, dtype=torch.bool)
    padding[0, :12] = True
    starts = torch.zeros(2, 30, dtype=torch.long)
    starts[1, 20:] = 20
    cpu = torch.device("cpu")
    both = FutureMask(fire.bias(0, 30), 15, 30, padding, document_start=starts).query_positions(cpu)
    assert both.tolist() == [list(range(3, 18)), [*range(15, 20), *range(10)]]
    assert math.isclose(fire.layers[0].log_threshold.exp().item(), 4, rel_tol=1e-6)


@HEADS_AND_TYPES
def test_cope_adds_count_vector_to_key(heads, dtype):
    cope = method("cope", heads)
    vectors = cope.layers[1].vectors
    assert vectors.shape == (8, 64) and not vectors.any()
    vectors.data.normal_()
    cope = cope.to(dtype)
    vectors = cope.layers[1].vectors
    # Long enough for counts past 63.
    keys = 150
    queries = 9
    q, k = (torch.randn(2, heads, n, 8).to(dtype).requires_grad_() for n in (queries, keys))
    mask = FutureMask(cope.bias(1, keys), queries, keys)
    ours = mask.block(q, k, 0, torch.float32)

    exact = [x.detach().double().requires_grad_() for x in (q, k, vectors)]
    expected = torch.full(ours.shape, -torch.inf, dtype=torch.float64)
    largest = 0.0
    for t in range(queries):
        count = torch.zeros(2, heads, dtype=torch.float64)
        for j in range(keys - queries + t, -1, -1):
            count = count + torch.sigmoid((exact[0][:, :, t] * exact[1][:, :, j]).sum(-1) / 8**0.5)
            place = count.clamp(max=63)
            below = place.detach().floor().long()
            share = (place - below)[..., None]
            vector = (1 - share) * exact[2].T[below] + share * exact[2].T[(below + 1).clamp(max=63)]
            expected[:, :, t, j] = (exact[0][:, :, t] * vector).sum(-1) / 8**0.5
        largest = max(largest, count.max().item())
    assert largest > 64
    torch.testing.assert_close(ours.double(), expected, rtol=1e-4, atol=1e-4)

    seen = expected.detach().isfinite()
    tolerance = 1e-4 if dtype == torch.float32 else 1e-2
    assert_same_gradients(ours[seen], expected[seen], (q, k, vectors), exact, tolerance)


@pytest.mark.parametrize("side", [-1, 1])
def test_cope_gradient_jumps_at_whole_counts(side):
    """One query and two keys, whose count of the first is less than 1e-8 from 1.

    Its derivative by the first key is then that of the one piece or of the other, which differ by
    far more than rounding: interpolation has a kink at each whole number.
    """
    cope = method("cope", 1).double()
    vectors = cope.layers[1].vectors
    vectors.data.normal_()
    q = torch.ones(1, 1, 1, 8, dtype=torch.float64)
    product = side * 1e-8  # of the query and the first key; the last key has none, σ(0) = 1/2
    first = torch.full((8,), product / 8**0.5, dtype=torch.float64)
    k = torch.stack([first, torch.zeros_like(first)]).view(1, 1, 2, 8).requires_grad_()
    bias = cope.bias(1, 2).block(q, k, 1)[0, 0, 0, 0]
    (found,) = torch.autograd.grad(bias, k)
    # σ'(0) = 1/4; the bias is that of the vector 0, 1 or 2.
    values = q[0, 0, 0] @ vectors[:, :3] / 8**0.5
    below, above = values.diff() / 4 / 8**0.5
    expected = above if side > 0 else below
    torch.testing.assert_close(found[0, 0, 0], expected.expand(8), rtol=1e-6, atol=0)
    assert (above - below).abs() > 0.01


@HEADS_AND_TYPES
def test_bam_matches_generalized_gaussian(heads, dtype):
    bam = method("bam", heads)
    distance = torch.arange(1000)
    assert torch.equal(bam.bias(1, 1000).at(distance), -torch.ones(heads, 1000))  # at first
    for parameter in bam.parameters():
        parameter.data.normal_(std=0.5)
    prior = bam.to(dtype).layers[1]
    ours = bam.bias(1, 1000).at(distance)
    exact = [p.detach().double().requires_grad_() for p in (prior.alpha, prior.beta)]
    alpha, beta = (p[:, None] for p in exact)
    expected = -alpha.exp() * (distance.double() + 1e-5) ** beta
    torch.testing.assert_close(ours.double(), expected, rtol=1e-4, atol=1e-5)
    tolerance = 1e-3 if dtype == torch.float32 else 1e-2
    assert_same_gradients(ours, expected, (prior.alpha, prior.beta), exact, tolerance)
