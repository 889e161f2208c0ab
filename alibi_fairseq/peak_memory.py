"""Peak memory of a training or an evaluation."""

from __future__ import annotations

import re
import resource
import sys
from contextlib import suppress
from pathlib import Path

import torch

from .machine import return_freed_memory


class PeakMemory:
    """Peak memory since construction, in MB (10^6 bytes).

    On a GPU, this is the memory allocated by torch. On a CPU, it is the resident memory of the
    whole process, including model and program. Memory that was freed before does not count, if the
    C library is glibc. Outside Linux, it is the peak since the start of the process.
    """

    def __init__(self, device: torch.device):
        self.device = device
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        else:
            return_freed_memory()
            with suppress(OSError):
                Path("/proc/self/clear_refs").write_text("5")  # resets the peak (see proc(5))

    def mb(self) -> float:
        """Return the peak since construction, in MB."""
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device) / 1e6
        with suppress(OSError):
            peak = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
            return int(peak[0]) * 1024 / 1e6
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        if sys.platform == "darwin":
            return most / 1e6  # bytes
        return most * 1024 / 1e6  # KiB
