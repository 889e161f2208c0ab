"""Peak memory of a measurement."""

from __future__ import annotations

import re
import resource
import sys
from contextlib import suppress
from pathlib import Path

import torch


class PeakMemory:
    """Peak memory since construction, in MB (10^6 bytes).

    On a GPU, the memory allocated by torch. On a CPU, the resident memory of the whole process,
    including model and program; except on Linux, since the start of the process.
    """

    def __init__(self, device: torch.device):
        self.device = device
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        else:
            with suppress(OSError):
                Path("/proc/self/clear_refs").write_text("5")

    def mb(self) -> float:
        """The peak so far."""
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device) / 1e6
        with suppress(OSError):
            peak = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
            return int(peak[0]) * 1024 / 1e6
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most / 1e6 if sys.platform == "darwin" else most * 1024 / 1e6
