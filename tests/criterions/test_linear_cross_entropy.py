"""The chunked cross-entropy against torch's own."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.utils._python_dispatch import TorchDispatchMode

from alibi_fairseq.criterions import linear_cross_entropy as kernel

ROWS, WIDTH, CLASSES = 101, 24, 101


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch):
    """Five rows at a time, so that the last chunk is a partial one."""
    monkeypatch.setitem(kernel.CHUNK, "cpu", 5 * CLASSES + 3)


def tensors(dtype=torch.float64, second: int = 0):
    """Targets (every fifth one ignored), and one part, or two of which the second is wider."""
    targets = torch.randint(CLASSES, (ROWS,))
    targets[::5] = 1
    shapes = [(WIDTH, CLASSES - second)] + ([(WIDTH + 8, second)] if second else [])
    parts = []
    for width, classes in shapes:
        x = torch.randn(ROWS, width, dtype=dtype, requires_grad=True)
        parts.append((x, torch.randn(classes, width, dtype=dtype, requires_grad=True)))
    return targets, parts


def leaves(parts):
    return [tensor for part in parts for tensor in part]


def expected(targets, parts, reduction="sum", factor=1.0):
    scores = torch.cat([x @ weight.t() for x, weight in parts], dim=1)
    losses = cross_entropy(scores.float() if scores.dtype.itemsize < 4 else scores,
                           targets, ignore_index=1, reduction=reduction)  # fmt: skip
    return losses.detach(), torch.autograd.grad((losses * factor).sum(), leaves(parts))


def computed(targets, parts, reduce=True, factor=1.0):
    losses = kernel.linear_cross_entropy(targets, *parts, ignore_index=1, reduce=reduce)
    total = (losses * factor).sum()
    gradients = torch.autograd.grad(total, leaves(parts), retain_graph=True)
    for one, other in zip(gradients, torch.autograd.grad(total, leaves(parts)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)  # of a second backward pass
    return losses.detach(), gradients


@pytest.fixture
def threads_of():
    """Sets the number of torch's threads for one test."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("dtype,atol", [(torch.float64, 1e-10), (torch.float32, 1e-5)])
@pytest.mark.parametrize("second", [0, 3])
def test_linear_cross_entropy_equals_torch(dtype, atol, second, threads, threads_of):
    threads_of(threads)
    targets, parts = tensors(dtype, second)
    wanted, got, again = (f(targets, parts, factor=0.5) for f in (expected, computed, computed))
    torch.testing.assert_close(got[0], wanted[0], rtol=atol, atol=atol)
    for one, other, repeated in zip(got[1], wanted[1], again[1], strict=True):
        torch.testing.assert_close(one, other, rtol=atol, atol=atol)
        assert torch.equal(repeated, one)
    factor = torch.rand(ROWS, dtype=dtype)
    wanted, got = expected(targets, parts, "none", factor), computed(targets, parts, False, factor)
    assert (got[0][::5] == 0).all()
    for one, other in zip((got[0], *got[1]), (wanted[0], *wanted[1]), strict=True):
        torch.testing.assert_close(one, other, rtol=atol, atol=atol)
    x, weight = parts[0]
    loss = kernel.linear_cross_entropy(targets[:0], (x[:0], weight))
    assert loss == 0 and torch.autograd.grad(loss, weight)[0].abs().max() == 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_as_exact_as_torch(dtype):
    """Against float64 on the same rounded inputs: our error is at most 1.5 times that of torch."""
    targets, parts = tensors(dtype)
    exact = [tuple(t.detach().double().requires_grad_() for t in part) for part in parts]
    truth, theirs = expected(targets, exact), expected(targets, parts)
    ours = computed(targets, parts)
    assert ours[0].dtype == torch.float32
    assert abs(ours[0] - truth[0]) <= 1.5 * abs(theirs[0] - truth[0]) + 1e-3 * truth[0]
    for one, other, true in zip(ours[1], theirs[1], truth[1], strict=True):
        assert one.dtype == dtype
        assert (one - true).norm() <= 1.5 * (other - true).norm()


def test_loss_scale_prevents_fp16_underflow():
    """Gradients below fp16's smallest number, 6e-8, become representable when they are scaled."""
    x = torch.eye(8, dtype=torch.float16, requires_grad=True)
    weight = torch.zeros(CLASSES, 8, dtype=torch.float16)
    weight[0] = 20.0  # all other classes have probability e^-20 = 2e-9
    weight.requires_grad_()
    targets = torch.zeros(8, dtype=torch.long)
    kernel.linear_cross_entropy(targets, (x, weight)).mul(2.0**12).backward()
    probability = torch.tensor(-20.0).exp() * 2**12
    torch.testing.assert_close(weight.grad[1, 0].float(), probability, rtol=0.01, atol=0)


def test_autocast_sets_the_precision():
    targets, ((x, weight),) = tensors(torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = computed(targets, [(x, weight)])
    wanted = expected(targets, [(x.bfloat16(), weight.bfloat16())])
    torch.testing.assert_close(got[0], wanted[0], rtol=0.01, atol=0)
    assert got[1][0].dtype == torch.float32


def test_thread_buffers_are_smaller_than_scores(threads_of, monkeypatch):
    """Each thread adds up a separate gradient of the weights, for at least WIDTH rows."""
    threads_of(4)
    workers = []

    def counted(tasks):
        workers.append(len(tasks))
        for task in tasks:
            task()

    monkeypatch.setattr(kernel, "run_parallel", counted)
    for rows in (WIDTH, 2 * WIDTH, 3 * WIDTH, 100 * WIDTH):
        x, weight = torch.randn(rows, WIDTH, requires_grad=True), torch.randn(CLASSES, WIDTH)
        kernel.linear_cross_entropy(torch.randint(CLASSES, (rows,)), (x, weight))
    assert workers == [2, 3, 4]


class LargestTensor(TorchDispatchMode):
    """Elements of the largest tensor that any operation inside of the context returns."""

    elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(tensor, torch.Tensor):
                self.elements = max(self.elements, tensor.numel())
        return result


@pytest.mark.parametrize("rows", [100, 1000, 10_000])
def test_largest_tensor_is_a_chunk_or_a_gradient(rows, monkeypatch):
    # In this thread, the only one whose operations LargestTensor sees.
    monkeypatch.setattr(kernel, "run_parallel", lambda tasks: [task() for task in tasks])
    words, width, chunk = 1000, 4, 8192
    monkeypatch.setitem(kernel.CHUNK, "cpu", chunk)
    x = torch.randn(rows, width, requires_grad=True)
    weight = torch.randn(words, width, requires_grad=True)
    with LargestTensor() as largest:
        targets = torch.randint(words, (rows,))
        kernel.linear_cross_entropy(targets, (x, weight)).backward()
    assert largest.elements <= max(chunk, rows * width, words * width)
