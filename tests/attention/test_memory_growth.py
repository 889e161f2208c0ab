"""No path but ``eager`` needs memory that grows with the square of the length."""

from __future__ import annotations

import ctypes
import gc
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from attention_calls import Call

from alibi_fairseq.attention import attend

LENGTH = 2048
HIGH_WATER_MARK = Path("/proc/self/clear_refs")
PATHS = [
    ("sdpa", "alibi", 0.0),
    ("sdpa", "alibi", 0.1),
    ("fold", "alibi", 0.0),
    ("skipping", "alibi", 0.0),
    pytest.param("sdpa", "t5", 0.0, marks=pytest.mark.slow),
    pytest.param("sdpa", "transformer_xl", 0.0, marks=pytest.mark.slow),
]


def _status(field: str) -> float:
    text = Path("/proc/self/status").read_text()
    return int(re.search(rf"{field}:\s+(\d+) kB", text)[1]) / 1024


def give_freed_memory_back() -> None:
    """Otherwise the holes that blocks of growing size leave in the heap count as memory in use."""
    set_option, mmap_threshold = ctypes.CDLL(None).mallopt, -3
    set_option(mmap_threshold, 2**18)


def peak_memory(function) -> float:
    """Most megabytes in use during a call, beyond what was in use before."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    HIGH_WATER_MARK.write_text("5")  # starts it anew
    before = _status("VmRSS")
    function()
    return _status("VmHWM") - before


def forward_and_backward(backend: str, method: str, dropout_p: float, length: int) -> float:
    call = Call(method=method, batch=1, heads=8, length=length, width=8, size=0.5)
    q, k, v, grad = call.tensors()
    inputs = [x.requires_grad_() for x in (q, k, v)]
    bias_and_mask = call.mask()

    def once():
        out, _ = attend(*inputs, bias_and_mask, dropout_p, backend=backend, strict=True)
        torch.autograd.grad(out, inputs, grad)

    return peak_memory(once)


def growth(*path) -> float:
    """Of a process of its own: what other tests have left in this one would count."""
    if not os.access(HIGH_WATER_MARK, os.W_OK):
        pytest.skip("the high-water mark of memory cannot be reset here")
    command = [sys.executable, __file__, *map(str, path)]
    folders = os.pathsep.join(sys.path)
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": folders}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return float(done.stdout)


def growth_here(*path) -> float:
    give_freed_memory_back()
    forward_and_backward(*path, LENGTH)  # kernels and their memory pools are set up once
    return forward_and_backward(*path, 2 * LENGTH) - forward_and_backward(*path, LENGTH)


@pytest.mark.parametrize(("backend", "method", "dropout_p"), PATHS)
def test_memory_grows_with_the_length_and_not_its_square(backend, method, dropout_p):
    one_matrix = 8 * LENGTH**2 * 4 / 2**20  # (H, T, T) at the shorter length, MB
    # From T to 2T a single (H, T, T) grows by three times that; what is linear, by less than one.
    assert growth(backend, method, dropout_p) < one_matrix


def test_the_measure_sees_a_matrix():
    """The reference does hold all weights, and this test could tell."""
    one_matrix = 8 * LENGTH**2 * 4 / 2**20
    assert growth("eager", "alibi", 0.0) > 3 * one_matrix


if __name__ == "__main__":
    print(growth_here(*sys.argv[1:3], float(sys.argv[3])))
