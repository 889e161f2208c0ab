"""Chunked cross-entropy compared with PyTorch's."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.utils._python_dispatch import TorchDispatchMode

from alibi_fairseq.plugin import linear_cross_entropy as kernel

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


def make_inputs(dtype=torch.float64, second_classes: int = 0):
    """Return targets, every fifth of them ignored, and one part or two.

    The second part has ``second_classes`` classes and wider inputs.
    """
    targets = torch.randint(CLASSES, (ROWS,))
    targets[::5] = IGNORED
    parts = [random_part(WIDTH, CLASSES - second_classes, dtype)]
    if second_classes:
        parts.append(random_part(WIDTH + 8, second_classes, dtype))
    return targets, parts


def tensors_of(parts):
    return [tensor for part in parts for tensor in part]


def torch_results(targets, parts, reduction="sum", factor=1.0):
    """Return PyTorch's losses, and the gradients of their sum times ``factor``."""
    scores = torch.cat([x @ weight.t() for x, weight in parts], dim=1)
    precise = scores.to(torch.promote_types(scores.dtype, torch.float32))
    losses = cross_entropy(precise, targets, ignore_index=IGNORED, reduction=reduction)
    gradients = torch.autograd.grad((losses * factor).sum(), tensors_of(parts))
    return losses.detach(), gradients


def chunked_results(targets, parts, reduce=True, factor=1.0):
    """Return the same from ``linear_cross_entropy``, after two backward passes that agree."""
    losses = kernel.linear_cross_entropy(targets, *parts, ignore_index=IGNORED, reduce=reduce)
    total = (losses * factor).sum()
    gradients = torch.autograd.grad(total, tensors_of(parts), retain_graph=True)
    second_gradients = torch.autograd.grad(total, tensors_of(parts))
    for first, second in zip(gradients, second_gradients, strict=True):
        torch.testing.assert_close(first, second, rtol=1e-12, atol=1e-12)
    return losses.detach(), gradients


def assert_all_close(results, expected, tolerance: float):
    for result, reference in zip(results, expected, strict=True):
        torch.testing.assert_close(result, reference, rtol=tolerance, atol=tolerance)


@pytest.fixture
def set_threads():
    """Return a function that sets the number of PyTorch's threads until the test ends."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
@pytest.mark.parametrize("second_classes", [0, 3])
class TestEqualsTorch:
    def test_sum_of_losses(self, dtype, tolerance, second_classes, threads, set_threads):
        set_threads(threads)
        targets, parts = make_inputs(dtype, second_classes)
        loss, gradients = chunked_results(targets, parts, factor=0.5)
        torch_loss, torch_gradients = torch_results(targets, parts, factor=0.5)
        assert_all_close([loss, *gradients], [torch_loss, *torch_gradients], tolerance)

    def test_losses_by_row(self, dtype, tolerance, second_classes, threads, set_threads):
        set_threads(threads)
        targets, parts = make_inputs(dtype, second_classes)
        factor = torch.rand(ROWS, dtype=dtype)
        losses, gradients = chunked_results(targets, parts, reduce=False, factor=factor)
        torch_losses, torch_gradients = torch_results(targets, parts, "none", factor)
        assert (losses[targets == IGNORED] == 0).all()
        assert_all_close([losses, *gradients], [torch_losses, *torch_gradients], tolerance)


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("second_classes", [0, 3])
def test_gradients_are_reproducible(dtype, second_classes, threads, set_threads):
    set_threads(threads)
    targets, parts = make_inputs(dtype, second_classes)
    _, gradients = chunked_results(targets, parts, factor=0.5)
    _, repeated_gradients = chunked_results(targets, parts, factor=0.5)
    for gradient, repeated in zip(gradients, repeated_gradients, strict=True):
        assert torch.equal(gradient, repeated)


def test_empty_input_has_zero_loss_and_gradient():
    targets, [(x, weight)] = make_inputs()
    loss = kernel.linear_cross_entropy(targets[:0], (x[:0], weight))
    assert loss == 0
    (gradient,) = torch.autograd.grad(loss, weight)
    assert gradient.abs().max() == 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_as_exact_as_torch(dtype):
    """Compare both errors from float64 on the same rounded inputs, up to a factor of 1.5."""
    targets, [(x, weight)] = make_inputs(dtype)
    exact_x = x.detach().double().requires_grad_()
    exact_weight = weight.detach().double().requires_grad_()
    exact_loss, exact_gradients = torch_results(targets, [(exact_x, exact_weight)])
    torch_loss, torch_gradients = torch_results(targets, [(x, weight)])
    loss, gradients = chunked_results(targets, [(x, weight)])
    assert loss.dtype == torch.float32
    assert abs(loss - exact_loss) <= 1.5 * abs(torch_loss - exact_loss) + 1e-3 * exact_loss
    results = zip(gradients, torch_gradients, exact_gradients, strict=True)
    for gradient, torch_gradient, exact_gradient in results:
        assert gradient.dtype == dtype
        torch_error = (torch_gradient - exact_gradient).norm()
        assert (gradient - exact_gradient).norm() <= 1.5 * torch_error


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


def test_autocast_sets_precision():
    targets, [(x, weight)] = make_inputs(torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss, gradients = chunked_results(targets, [(x, weight)])
    bf16_loss, _ = torch_results(targets, [(x.bfloat16(), weight.bfloat16())])
    fp32_loss, _ = torch_results(targets, [(x, weight)])
    assert abs(loss - bf16_loss) < abs(loss - fp32_loss)
    torch.testing.assert_close(loss, bf16_loss, rtol=0.01, atol=0)
    assert gradients[0].dtype == torch.float32


def test_thread_buffers_are_smaller_than_scores(set_threads, monkeypatch):
    """Each thread sums a separate gradient of the weights over at least WIDTH rows."""
    set_threads(4)
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
        outputs = result if isinstance(result, (tuple, list)) else [result]
        for output in outputs:
            if isinstance(output, torch.Tensor):
                self.elements = max(self.elements, output.numel())
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
