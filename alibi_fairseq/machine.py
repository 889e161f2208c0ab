"""Resources of the machine that are available to this process."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable


def cores() -> int:
    """Return the number of available CPU cores, which a container or SLURM may restrict."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def glibc_function(name: str) -> Callable[..., int] | None:
    """Return a function of glibc, or None if the process has another C library, such as musl."""
    if not sys.platform.startswith("linux"):
        return None
    return getattr(ctypes.CDLL(None), name, None)


def return_freed_memory() -> None:
    """Return freed memory that glibc keeps for later to the operating system."""
    malloc_trim = glibc_function("malloc_trim")
    if malloc_trim is not None:
        malloc_trim(0)
