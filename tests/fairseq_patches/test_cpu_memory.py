"""Memory of freed tensors."""

import platform
import subprocess
import sys

import pytest

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


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_memory_of_freed_tensors_is_reused():
    output = subprocess.check_output([sys.executable, "-c", PROGRAM], text=True)
    default_pages, patched_pages = [int(line) for line in output.splitlines()[-2:]]
    assert patched_pages < 0.1 * default_pages
