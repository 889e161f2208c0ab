"""Resources of the machine that are available to this process."""

from __future__ import annotations

import ctypes
import os
import sys


def cores() -> int:
    """Return the number of available CPU cores, which a container or SLURM may restrict."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def return_freed_memory() -> None:
    """Return freed memory that glibc keeps for later to the operating system.

    Another C library, such as musl, has no such function.
    """
    if sys.platform.startswith("linux"):
        malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if malloc_trim is not None:
            malloc_trim(0)
