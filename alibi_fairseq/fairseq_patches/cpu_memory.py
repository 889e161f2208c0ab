"""Workaround for PyTorch's memory on the CPU."""

from __future__ import annotations

import ctypes
import sys

from ..errors import is_command

#: Numbers of the parameters of ``mallopt`` in ``malloc.h`` of glibc.
TRIM_THRESHOLD = -1
MMAP_THRESHOLD = -3

#: Largest tensor whose memory is kept, in bytes.
LARGEST_KEPT = 2**30


def keep_freed_memory() -> None:
    """Keep the memory of freed tensors in the process, for the next tensors.

    PyTorch has no cache for tensors on the CPU (pytorch/pytorch#55675). By default, glibc returns
    each large tensor to the operating system when it is freed. The kernel then maps and clears
    all pages again for the next tensor, in every update. Commands that do not run on Linux with
    glibc are left unchanged.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # another C library, such as musl
        return
    mallopt(MMAP_THRESHOLD, LARGEST_KEPT)
    mallopt(TRIM_THRESHOLD, 2**31 - 1)


if is_command():
    keep_freed_memory()
