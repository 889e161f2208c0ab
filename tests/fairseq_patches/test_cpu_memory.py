"""Memory of freed tensors."""

import platform
import subprocess
import sys

import pytest

from alibi_fairseq.fairseq_patches import cpu_memory
from alibi_fairseq.fairseq_patches.cpu_memory import MMAP_THRESHOLD, TRIM_THRESHOLD

#: Prints how many pages the kernel maps for ten tensors of 64 MiB, one after the other, by default
#: and after ``keep_freed_memory``.
PROGRAM = """
import resource
import torch
from alibi_fairseq.fairseq_patches.cpu_memory import keep_freed_memory

def mapped_pages():
    for _ in range(3):
        torch.zeros(2**24)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        torch.zeros(2**24)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

print(mapped_pages())
keep_freed_memory()
print(mapped_pages())
"""

#: Prints the process's memory in MB before and after tensors of 400 MB that are freed.
PEAK_PROGRAM = """
import torch
from alibi_fairseq.evaluation.scoring import PeakMemory
from alibi_fairseq.fairseq_patches.cpu_memory import keep_freed_memory

keep_freed_memory()
print(PeakMemory(torch.device("cpu")).mb())
tensors = [torch.ones(12_500_000) for _ in range(8)]
del tensors
print(PeakMemory(torch.device("cpu")).mb())
"""


def run_program(program: str) -> list[float]:
    """Return the two numbers that a program prints."""
    output = subprocess.check_output([sys.executable, "-c", program], text=True)
    return [float(line) for line in output.splitlines()[-2:]]


@pytest.mark.ci
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_memory_of_freed_tensors_is_reused():
    default_pages, patched_pages = run_program(PROGRAM)
    assert patched_pages < 0.1 * default_pages


@pytest.mark.ci
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_peak_memory_does_not_include_memory_freed_before():
    before, after = run_program(PEAK_PROGRAM)
    assert after < before + 100


@pytest.mark.parametrize(
    ("largest", "accepted"),
    [
        (2**30, [(MMAP_THRESHOLD, 2**30), (TRIM_THRESHOLD, 2**31 - 1)]),
        (2**25, [(MMAP_THRESHOLD, 2**25), (TRIM_THRESHOLD, 2**31 - 1)]),
        (0, []),
    ],
)
def test_thresholds_are_within_limit_of_c_library(monkeypatch, largest, accepted):
    parameters = []

    def mallopt(parameter, value):
        if parameter == MMAP_THRESHOLD and value > largest:
            return 0
        parameters.append((parameter, value))
        return 1

    monkeypatch.setattr(cpu_memory, "glibc_function", lambda name: mallopt)
    cpu_memory.keep_freed_memory()
    assert parameters == accepted
