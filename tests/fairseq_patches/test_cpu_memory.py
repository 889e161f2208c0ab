"""Memory of freed tensors."""

import platform
import subprocess
import sys

import pytest

#: Prints how many pages the kernel maps for ten tensors of 64 MiB, one after the other.
PROGRAM = """
import resource
import torch
from alibi_fairseq.fairseq_patches.cpu_memory import keep_freed_memory

if {keep}:
    keep_freed_memory()
for _ in range(3):
    torch.zeros(2**24)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    torch.zeros(2**24)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def mapped_pages(keep: bool) -> int:
    program = PROGRAM.format(keep=keep)
    output = subprocess.check_output([sys.executable, "-c", program], text=True)
    return int(output.splitlines()[-1])


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_memory_of_freed_tensors_is_reused():
    assert mapped_pages(keep=True) < 0.1 * mapped_pages(keep=False)
