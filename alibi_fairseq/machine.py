"""Resources of the machine that are available to this process."""

from __future__ import annotations

import os


def cores() -> int:
    """Return the number of available CPU cores, which a container or SLURM may restrict."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
