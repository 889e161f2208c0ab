"""KERPLE, Sandwich, xPos, FIRE, CoPE, and BAM compared with the formulas of their papers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from attention_calls import Call, assert_same_gradients, reference, results

from alibi_fairseq.attention import FutureMask
from alibi_fairseq.errors import UserInputError
from alibi_fairseq.positions import PositionConfig, build_position_method
from alibi_fairseq.positions.xpos import last_position

HEADS = [1, 12]
HEADS_AND_TYPES = pytest.mark.parametrize(
    ("heads", "dtype"), [(1, torch.bfloat16), (12, torch.float32)], ids=str
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


@pytest.mark.parametrize(("parameter", "largest"), [("log_p", 2), ("log_a", 1)])
def test_kerple_initial_values_are_in_published_range(parameter, largest):
    kerple = method("kerple", heads=512, head_dim=2)
    values = getattr(kerple, parameter).exp()
    assert values.min() > 0.0099
    assert 0.95 * largest < values.max() <= largest


@pytest.mark.parametrize("heads", HEADS)
def test_sandwich_matches_sinusoidal_inner_product(heads):
    # The appendix of the paper computes it this way, for all pairs of positions.
    frequencies = 10000 ** (2 * np.arange(64) / 128)
    angles = np.arange(300)[:, None] / frequencies
    embeddings = np.concatenate([np.sin(angles), np.cos(angles)], axis=-1)  # (T, 128)
    products = torch.from_numpy(embeddings @ embeddings.T)
    ratios = torch.arange(1, heads + 1, dtype=torch.float64) * 8 / heads
    relative = products - products.diagonal()[:, None]  # softmax is invariant to this difference
    expected = relative / ratios[:, None, None]

    positions = torch.arange(300)
    distance = (positions[:, None] - positions).abs()
    bias = method("sandwich", heads).bias(0, 300).at(distance)
    torch.testing.assert_close(bias.double(), expected, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("heads", [1, 8, 12, 32])
@pytest.mark.parametrize("backend", ["eager", "sdpa"])  # the only ones for Sandwich
def test_sandwich_is_precise_in_half_precision(heads, dtype, backend):
    call = Call("sandwich", heads=heads, dtype=dtype)
    expected, *_ = reference(call)
    output, *_ = results(call, backend)
    error = (output - expected).abs().max() / expected.abs().max()
    assert error < torch.finfo(dtype).eps


@pytest.mark.parametrize("heads", [1, 12])
@pytest.mark.parametrize("start", [0, 700])
def test_xpos_scores_match_complex_formula(heads, start):
    size = 8
    length = 30
    q, k = torch.randn(2, 1, heads, length, size, dtype=torch.float64).requires_grad_()
    rotation = method("xpos", heads, size).rotation(start, length, q.device)
    rotated_q, rotated_k = rotation(q, k)
    output = rotated_q @ rotated_k.transpose(2, 3)

    pairs = torch.arange(size // 2, dtype=torch.float64)
    speeds = 10000.0 ** (-2 * pairs / size)
    fading = (2 * pairs / size + 0.4) / 1.4
    positions = torch.arange(length)
    distance = (positions[:, None] - positions)[..., None]  # (T, T, 1)
    factors = torch.polar(fading ** (distance / 512), distance * speeds)  # (T, T, D/2)
    complex_q = torch.complex(q[..., : size // 2], q[..., size // 2 :])
    complex_k = torch.complex(k[..., : size // 2], k[..., size // 2 :])
    # A score is the real part of q · conjugate(k), rotated and decayed by the distance.
    scores = torch.einsum("bhic,bhjc,ijc->bhij", complex_q, complex_k.conj(), factors)
    expected = scores.real
    torch.testing.assert_close(output, expected, rtol=0, atol=1e-3)

    assert_same_gradients(output, expected, (q, k), tolerance=1e-3)


@pytest.mark.parametrize(
    ("dtype", "approximate_limit"), [(torch.float16, 2550), (torch.bfloat16, 34300)]
)
def test_xpos_rejects_lengths_with_overflow(dtype, approximate_limit):
    last = last_position(dtype)
    assert last == pytest.approx(approximate_limit, rel=0.02)
    x = torch.full((1, 1, 1, 8), 64.0, dtype=dtype)
    q, k = method("xpos").rotation(last, 1, x.device)(x, x)
    assert q.isfinite().all()
    assert k.isfinite().all()
    for start, length in ((last + 1, 1), (0, last + 2)):
        with pytest.raises(UserInputError, match=f"limited to position {last}"):
            method("xpos").rotation(start, length, x.device)(x, x)


@HEADS_AND_TYPES
def test_fire_interpolates_over_context(heads, dtype):
    fire = build_position_method("fire", PositionConfig(8 * heads, heads, 2, 158)).to(dtype)
    layer = fire.layers[1]
    keys = 60
    queries = 35  # positions 25 to 59: the threshold is 39.5
    q = torch.zeros(1, heads, queries, 8, dtype=dtype)
    k = torch.zeros(1, heads, keys, 8, dtype=dtype)
    mask = FutureMask(fire.bias(1, keys), queries, keys)
    ours = mask.block(q, k, 0, torch.float32)
    assert ours.shape == (1, heads, queries, keys)

    c = layer.c.double().abs()
    threshold = layer.log_threshold.double().exp()
    assert threshold.item() == pytest.approx(39.5, rel=0.02)
    hidden_weight = layer.hidden.weight.double()
    hidden_bias = layer.hidden.bias.double()
    out_weight = layer.out.weight.double()
    out_bias = layer.out.bias.double()
    expected = torch.full((1, heads, queries, keys), -torch.inf, dtype=torch.float64)
    for t in range(queries):
        i = keys - queries + t
        for j in range(i + 1):
            ratio = torch.log(c * (i - j) + 1) / torch.log(c * max(i, threshold) + 1)
            hidden = torch.relu(hidden_weight @ ratio + hidden_bias)
            expected[0, :, t, j] = out_weight @ hidden + out_bias
    torch.testing.assert_close(ours.double(), expected, rtol=1e-4, atol=1e-5)

    visible = expected.detach().isfinite()
    tolerance = 1e-4 if dtype == torch.float32 else 1e-2
    inputs = list(layer.parameters())
    assert_same_gradients(ours[visible], expected[visible], inputs, tolerance=tolerance)


def test_fire_trains_only_the_layer_of_its_bias():
    fire = method("fire")
    mask = FutureMask(fire.bias(1, 6), 6, 6)
    q = torch.zeros(1, 8, 6, 8)
    block = mask.block(q, q, 0, torch.float32)
    block[block.isfinite()].sum().backward()
    assert all(p.grad is None for p in fire.layers[0].parameters())
    assert all(p.grad is not None for p in fire.layers[1].parameters())


def test_fire_threshold_starts_at_a_quarter_of_training_length():
    threshold = method("fire").layers[0].log_threshold.exp()
    assert math.isclose(threshold.item(), 4, rel_tol=1e-6)


def test_fire_counts_positions_from_document_start():
    """Padding and earlier documents are not counted."""
    fire = method("fire")
    padding = torch.zeros(2, 30, dtype=torch.bool)
    padding[0, :12] = True
    starts = torch.zeros(2, 30, dtype=torch.long)
    starts[1, 20:] = 20
    mask = FutureMask(fire.bias(0, 30), 15, 30, padding, document_start=starts)
    padded, in_documents = mask.query_positions(torch.device("cpu")).tolist()
    assert padded == list(range(3, 18))
    assert in_documents == [*range(15, 20), *range(10)]


@HEADS_AND_TYPES
def test_cope_adds_count_vector_to_key(heads, dtype):
    cope = method("cope", heads)
    vectors = cope.layers[1].vectors
    assert vectors.shape == (8, 64)
    assert not vectors.any()
    vectors.data.normal_()
    cope = cope.to(dtype)
    vectors = cope.layers[1].vectors
    # Long enough for counts past 63.
    keys = 150
    queries = 9
    q = torch.randn(2, heads, queries, 8).to(dtype).requires_grad_()
    k = torch.randn(2, heads, keys, 8).to(dtype).requires_grad_()
    mask = FutureMask(cope.bias(1, keys), queries, keys)
    ours = mask.block(q, k, 0, torch.float32)

    exact = [x.detach().double().requires_grad_() for x in (q, k, vectors)]
    exact_q, exact_k, exact_vectors = exact
    table = exact_vectors.T  # one vector per count, 0 to 63
    expected = torch.full(ours.shape, -torch.inf, dtype=torch.float64)
    largest = 0.0
    for t in range(queries):
        query = exact_q[:, :, t]
        count = torch.zeros(2, heads, dtype=torch.float64)
        for j in range(keys - queries + t, -1, -1):
            score = (query * exact_k[:, :, j]).sum(-1) / 8**0.5
            count = count + torch.sigmoid(score)
            limited = count.clamp(max=63)
            below = limited.detach().floor().long()
            above = (below + 1).clamp(max=63)
            fraction = (limited - below)[..., None]
            vector = (1 - fraction) * table[below] + fraction * table[above]
            expected[:, :, t, j] = (query * vector).sum(-1) / 8**0.5
        largest = max(largest, count.max().item())
    assert largest > 64
    torch.testing.assert_close(ours.double(), expected, rtol=1e-4, atol=1e-4)

    visible = expected.detach().isfinite()
    tolerance = 1e-4 if dtype == torch.float32 else 1e-2
    inputs = (q, k, vectors)
    assert_same_gradients(ours[visible], expected[visible], inputs, exact, tolerance)


@pytest.mark.parametrize("side", [-1, 1])
def test_cope_gradient_jumps_at_whole_counts(side):
    """One query and two keys, such that the count of the first key is within 1e-8 of 1.

    Interpolation has a kink at each whole number. The derivative with respect to the first key is
    that of one piece or of the other, and the two differ by far more than rounding.
    """
    cope = method("cope", 1).double()
    vectors = cope.layers[1].vectors
    vectors.data.normal_()
    q = torch.ones(1, 1, 1, 8, dtype=torch.float64)
    # Both gates are close to σ(0) = 1/2. The last key is zero, and the first one nearly so.
    product = side * 1e-8
    first_key = torch.full((8,), product / 8**0.5, dtype=torch.float64)
    last_key = torch.zeros(8, dtype=torch.float64)
    k = torch.stack([first_key, last_key]).view(1, 1, 2, 8).requires_grad_()
    bias = cope.bias(1, 2).block(q, k, 1)[0, 0, 0, 0]
    (gradient,) = torch.autograd.grad(bias, k)
    # σ'(0) = 1/4, and vectors 0, 1, and 2 surround the count.
    values = q[0, 0, 0] @ vectors[:, :3] / 8**0.5
    below, above = values.diff() / 4 / 8**0.5
    expected = above if side > 0 else below
    torch.testing.assert_close(gradient[0, 0, 0], expected.expand(8), rtol=1e-6, atol=0)
    assert (above - below).abs() > 0.01


@pytest.mark.parametrize("heads", HEADS)
def test_bam_bias_starts_constant(heads):
    bias = method("bam", heads).bias(1, 1000).at(torch.arange(1000))
    assert torch.equal(bias, -torch.ones(heads, 1000))


@HEADS_AND_TYPES
def test_bam_matches_generalized_gaussian(heads, dtype):
    bam = method("bam", heads)
    distance = torch.arange(1000)
    for parameter in bam.parameters():
        parameter.data.normal_(std=0.5)
    prior = bam.to(dtype).layers[1]
    ours = bam.bias(1, 1000).at(distance)
    exact_alpha = prior.alpha.detach().double().requires_grad_()
    exact_beta = prior.beta.detach().double().requires_grad_()
    powers = (distance.double() + 1e-5) ** exact_beta[:, None]
    expected = -exact_alpha[:, None].exp() * powers
    torch.testing.assert_close(ours.double(), expected, rtol=1e-4, atol=1e-5)
    tolerance = 1e-3 if dtype == torch.float32 else 1e-2
    inputs = (prior.alpha, prior.beta)
    assert_same_gradients(ours, expected, inputs, (exact_alpha, exact_beta), tolerance)
