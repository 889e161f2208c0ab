"""The chunked cross-entropy compared with PyTorch's."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.utils._python_dispatch import TorchDispatchMode

from alibi_fairseq.criterions import linear_cross_entropy as kernel

ROWS = 101
WIDTH = 24
CLASSES = 101
IGNORED = 1


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch):
    """Compute five rows at a time, so that the last chunk is a partial one."""
    monkeypatch.setitem(kernel.CHUNK, "cpu", 5 * CLASSES + 3)


def random_part(width: int, classes: int, dtype: torch.dtype):
    """Return inputs and output weights."""
    x = torch.randn(ROWS, width, dtype=dtype, requires_grad=True)
    weight = torch.randn(classes, width, dtype=dtype, requires_grad=True)
    return x, weight


def tensors(dtype=torch.float64, second: int = 0):
    """Return targets, of which every fifth is ignored, and one part or two.

    The second part has ``second`` classes and wider inputs.
    """
    targets = torch.randint(CLASSES, (ROWS,))
    targets[::5] = IGNORED
    parts = [random_part(WIDTH, CLASSES - second, dtype)]
    if second:
        parts.append(random_part(WIDTH + 8, second, dtype))
    return targets, parts


def leaves(parts):
    return [tensor for part in parts for tensor in part]


def expected(targets, parts, reduction="sum", factor=1.0):
    """Return PyTorch's losses, and the gradients of their sum times ``factor``."""
    scores = torch.cat([x @ weight.t() for x, weight in parts], dim=1)
    precise = scores.to(torch.promote_types(scores.dtype, torch.float32))
    losses = cross_entropy(precise, targets, ignore_index=IGNORED, reduction=reduction)
    gradients = torch.autograd.grad((losses * factor).sum(), leaves(parts))
    return losses.detach(), gradients


def computed(targets, parts, reduce=True, factor=1.0):
    """Return the same from ``linear_cross_entropy``, after two backward passes that agree."""
    losses = kernel.linear_cross_entropy(targets, *parts, ignore_index=IGNORED, reduce=reduce)
    total = (losses * factor).sum()
    gradients = torch.autograd.grad(total, leaves(parts), retain_graph=True)
    second_gradients = torch.autograd.grad(total, leaves(parts))
    for first, second in zip(gradients, second_gradients, strict=True):
        torch.testing.assert_close(first, second, rtol=1e-12, atol=1e-12)
    return losses.detach(), gradients


def assert_all_close(found, wanted, tolerance: float):
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


@pytest.fixture
def threads_of():
    """Return a function that sets the number of PyTorch's threads until the test ends."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
@pytest.mark.parametrize("second", [0, 3])
class TestEqualsTorch:
    def test_sum_of_losses(self, dtype, tolerance, second, threads, threads_of):
        threads_of(threads)
        targets, parts = tensors(dtype, second)
        loss, gradients = computed(targets, parts, factor=0.5)
        their_loss, their_gradients = expected(targets, parts, factor=0.5)
        assert_all_close([loss, *gradients], [their_loss, *their_gradients], tolerance)

    def test_losses_by_row(self, dtype, tolerance, second, threads, threads_of):
        threads_of(threads)
        targets, parts = tensors(dtype, second)
        factor = torch.rand(ROWS, dtype=dtype)
        losses, gradients = computed(targets, parts, reduce=False, factor=factor)
        their_losses, their_gradients = expected(targets, parts, "none", factor)
        assert (losses[targets == IGNORED] == 0).all()
        assert_all_close([losses, *gradients], [their_losses, *their_gradients], tolerance)


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("second", [0, 3])
def test_gradients_are_reproducible(dtype, second, threads, threads_of):
    threads_of(threads)
    targets, parts = tensors(dtype, second)
    _, first = computed(targets, parts, factor=0.5)
    _, again = computed(targets, parts, factor=0.5)
    for one, other in zip(first, again, strict=True):
        assert torch.equal(one, other)


def test_no_rows_have_no_loss_and_no_gradient():
    targets, ((x, weight),) = tensors()
    loss = kernel.linear_cross_entropy(targets[:0], (x[:0], weight))
    assert loss == 0
    (gradient,) = torch.autograd.grad(loss, weight)
    assert gradient.abs().max() == 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_as_exact_as_torch(dtype):
    """The error from float64 on the same rounded inputs is at most 1.5 times that of PyTorch."""
    targets, ((x, weight),) = tensors(dtype)
    exact_x = x.detach().double().requires_grad_()
    exact_weight = weight.detach().double().requires_grad_()
    exact_loss, exact_gradients = expected(targets, [(exact_x, exact_weight)])
    their_loss, their_gradients = expected(targets, [(x, weight)])
    loss, gradients = computed(targets, [(x, weight)])
    assert loss.dtype == torch.float32
    assert abs(loss - exact_loss) <= 1.5 * abs(their_loss - exact_loss) + 1e-3 * exact_loss
    for ours, theirs, exact in zip(gradients, their_gradients, exact_gradients, strict=True):
        assert ours.dtype == dtype
        assert (ours - exact).norm() <= 1.5 * (theirs - exact).norm()


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
        loss, gradients = computed(targets, [(x, weight)])
    in_bf16, _ = expected(targets, [(x.bfloat16(), weight.bfloat16())])
    in_fp32, _ = expected(targets, [(x, weight)])
    assert abs(loss - in_bf16) < abs(loss - in_fp32)
    torch.testing.assert_close(loss, in_bf16, rtol=0.01, atol=0)
    assert gradients[0].dtype == torch.float32


def test_thread_buffers_are_smaller_than_scores(threads_of, monkeypatch):
    """Each thread adds up a separate gradient of the weights, for at least WIDTH rows."""
    threads_of(4)
    workers = []

    def run_and_count(tasks):
        workers.append(len(tasks))
        for task in tasks:
            task()

    monkeypatch.setattr(kernel, "run_parallel", run_and_count)
    for rows in (WIDTH, 2 * WIDTH, 3 * WIDTH, 100 * WIDTH):
        x = torch.randn(rows, WIDTH, requires_grad=True)
        weight = torch.randn(CLASSES, WIDTH)
        kernel.linear_cross_entropy(torch.randint(CLASSES, (rows,)), (x, weight))
    assert workers == [2, 3, 4]


class LargestTensor(TorchDispatchMode):
    """Context that records the size of the largest tensor returned by any operation."""

    elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        tensors = result if isinstance(result, (tuple, list)) else [result]
        for tensor in tensors:
            if isinstance(tensor, torch.Tensor):
                self.elements = max(self.elements, tensor.numel())
        return result


@pytest.mark.parametrize("rows", [100, 1000, 10_000])
def test_largest_tensor_is_a_chunk_or_a_gradient(rows, monkeypatch):
    def run_in_this_thread(tasks):
        for task in tasks:
            task()

    # LargestTensor sees only operations of this thread.
    monkeypatch.setattr(kernel, "run_parallel", run_in_this_thread)
    words = 1000
    width = 4
    chunk = 8192
    monkeypatch.setitem(kernel.CHUNK, "cpu", chunk)
    x = torch.randn(rows, width, requires_grad=True)
    weight = torch.randn(words, width, requires_grad=True)
    with LargestTensor() as largest:
        targets = torch.randint(words, (rows,))
        kernel.linear_cross_entropy(targets, (x, weight)).backward()
    assert largest.elements <= max(chunk, rows * width, words * width)
