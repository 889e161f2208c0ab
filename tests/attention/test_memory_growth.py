"""No path but ``eager`` needs memory that grows with the square of the length."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import re
from pathlib import Path

import pytest
import torch
from attention_calls import Call
from commands import as_process

from alibi_fairseq.attention import attend

LENGTH = 1024
HIGH_WATER_MARK = Path("/proc/self/clear_refs")
PATHS = [("eager", 0.0), ("sdpa", 0.0), ("sdpa", 0.1), ("fold", 0.0), ("skipping", 0.0)]


def _status(field: str) -> float:
    text = Path("/proc/self/status").read_text()
    return int(re.search(rf"{field}:\s+(\d+) kB", text)[1]) / 1024


def peak_memory(backend: str, dropout_p: float, length: int) -> float:
    """Most megabytes in use by a forward and backward pass, beyond what was in use before."""
    call = Call(batch=1, length=length, width=8, size=0.5)
    (q, k, v, grad), mask = call.tensors(), call.mask()
    inputs = [x.requires_grad_() for x in (q, k, v)]
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    HIGH_WATER_MARK.write_text("5")  # starts it anew
    before = _status("VmRSS")
    out, _ = attend(*inputs, mask, dropout_p, backend=backend, strict=True)
    torch.autograd.grad(out, inputs, grad)
    return _status("VmHWM") - before


def growth() -> list[float]:
    # Or the holes that blocks of growing size leave in the heap would count as memory in use.
    set_option, mmap_threshold = ctypes.CDLL(None).mallopt, -3
    set_option(mmap_threshold, 2**18)
    found = []
    for path in PATHS:
        peak_memory(*path, LENGTH)  # kernels and their memory pools are set up once
        found.append(peak_memory(*path, 2 * LENGTH) - peak_memory(*path, LENGTH))
    return found


def test_memory_grows_with_the_length_and_not_its_square():
    """In a process of its own: what other tests have left in this one would count."""
    if not os.access(HIGH_WATER_MARK, os.W_OK):
        pytest.skip("the high-water mark of memory cannot be reset here")
    done = as_process(__file__, PYTHONPATH=os.pathsep.join(map(str, Path(__file__).parents[1:3])))
    assert done.returncode == 0, done.stderr
    one_matrix = 8 * LENGTH**2 * 4 / 2**20  # (H, T, T) at the shorter length, MB
    eager, *others = json.loads(done.stdout)
    assert eager > 3 * one_matrix, "it holds all weights, and the measure does not see it"
    # From T to 2T a single (H, T, T) grows by three times that; what is linear, by less than one.
    assert max(others) < one_matrix, others


if __name__ == "__main__":
    print(json.dumps(growth()))
