"""Peak memory of a measurement, and what a forward pass may hold."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import torch

#: Memory budget of a forward pass on the CPU, in bytes.
CPU_BUDGET = 2 * 10**9
#: Inputs per batch beyond which throughput no longer improves.
ENOUGH_INPUTS = {"cpu": 4096, "cuda": 131072}


def windows_per_batch(
    length: int, bytes_per_input: int, device: torch.device, budget: int | None
) -> int:
    """The number of windows of ``length`` inputs to compute at once, at least 1.

    Args:
        bytes_per_input: memory that a forward pass takes per input.
        budget: bytes that it may take; None for 2 GB on a CPU, half of a GPU's total memory. Not of the
            free memory: shards on equal machines must form equal batches.
    """
    if budget is None:
        cuda = device.type == "cuda"
        budget = torch.cuda.get_device_properties(device).total_memory // 2 if cuda else CPU_BUDGET
    enough = ENOUGH_INPUTS.get(device.type, ENOUGH_INPUTS["cuda"])
    return max(1, min(enough, budget // bytes_per_input) // length)


class PeakMemory:
    """Peak memory since construction, in MB (10^6 bytes).

    On a GPU, the memory allocated by torch. On a CPU, the resident memory of the whole process,
    including model and program; except on Linux, since the start of the process.
    """

    def __init__(self, device: torch.device):
        self.device = device
        self._resettable = False
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            return
        try:
            Path("/proc/self/clear_refs").write_text("5")
            self._resettable = True
        except OSError:
            pass

    def mb(self) -> float:
        """The peak so far."""
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device) / 1e6
        if self._resettable:
            for line in Path("/proc/self/status").read_text().splitlines():
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024 / 1e6
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6
