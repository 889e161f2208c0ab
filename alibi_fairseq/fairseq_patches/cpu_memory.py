"""Workaround for PyTorch's memory on the CPU."""

from __future__ import annotations

from ..errors import is_command
from ..machine import glibc_function

#: Numbers of the parameters of ``mallopt`` in ``malloc.h`` of glibc.
TRIM_THRESHOLD = -1
MMAP_THRESHOLD = -3

#: Largest tensors whose memory is kept, in bytes. glibc 2.34 and earlier reject the first size.
LARGEST_KEPT = (2**30, 2**25)


def keep_freed_memory() -> None:
    """Keep the memory of freed tensors in the process, for the next tensors.

    PyTorch has no cache for tensors on the CPU (pytorch/pytorch#55675). By default, glibc returns
    each large tensor to the operating system when it is freed. The kernel then maps and clears
    all pages again for the next tensor, in every update. Commands that do not run on Linux with
    glibc are left unchanged.
    """
    mallopt = glibc_function("mallopt")
    if mallopt is None:
        return
    for size in LARGEST_KEPT:
        if mallopt(MMAP_THRESHOLD, size):  # 0 is a refusal
            # Without the threshold above, this would fix it at the small default of 128 KiB.
            mallopt(TRIM_THRESHOLD, 2**31 - 1)
            return


if is_command():
    keep_freed_memory()
