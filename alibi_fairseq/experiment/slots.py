"""Slots: the GPUs or cores of this machine, divided among runs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import cycle, islice

from ..machine import cores
from .stopping import StopRequest, stop_requests

GPUS_VARIABLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class Slot:
    """GPUs or cores of one run at a time.

    Attributes:
        environment: environment variables that assign the GPUs or cores to child processes.
        stop: stop request that the main thread records, for work in another thread, which cannot
            handle signals. None: the work is in the main thread, which handles them itself. (Jobs
            record it in the main thread as well, because they need to know the signal later.)
    """

    environment: Mapping[str, str] = field(default_factory=dict)
    stop: StopRequest | None = None

    def stop_requests(self) -> AbstractContextManager[StopRequest]:
        """Return a context with the stop request, which records signals if ``stop`` is None."""
        return stop_requests() if self.stop is None else nullcontext(self.stop)


DEFAULT_SLOT = Slot()


@dataclass(frozen=True)
class Resources:
    """What each run, or each job, uses.

    Attributes:
        gpus: number of GPUs on each node that has any. 0: the CPU.
        nodes: number of nodes.
        processes: number of training processes on each node.
        memory_gb: main memory of each process in 10⁹ bytes; None: what SLURM gives by default.
    """

    gpus: int = 1
    nodes: int = 1
    processes: int = 1
    memory_gb: int | None = None

    @property
    def several_gpus(self) -> bool:
        """True if an evaluation, which uses one GPU, would waste the others."""
        return self.gpus * self.nodes > 1


def make_slots(
    run_count: int, gpus: int, threads: int | None = None, parallel: int | None = None
) -> list[Slot]:
    """Divide GPUs or cores among concurrent runs.

    Args:
        run_count: number of runs and trials, complete or not. If the number of threads depended on
            the unfinished ones, a resumed run would not have bitwise identical results to an
            uninterrupted one.
        gpus: number of this machine's GPUs that each run uses. 0: runs use the CPU.
        threads: number of threads of each run on a CPU (default: an equal division of the cores).
        parallel: number of slots (default: as many as the machine has GPUs or cores for).
    """
    import torch

    gpu_count = torch.cuda.device_count() if gpus else 0
    if parallel is None:
        capacity = gpu_count // gpus if gpu_count else cores()
        parallel = max(1, min(run_count, capacity))
    if gpu_count:
        return _gpu_slots(parallel, gpus, gpu_count)
    threads = threads or max(1, cores() // parallel)
    return [Slot({"OMP_NUM_THREADS": str(threads)})] * parallel


def describe_slots(slots: Sequence[Slot]) -> str:
    """Return the devices of concurrent runs: ``Up to 2 runs at a time on the CPU, …``."""
    number = "One run"
    if len(slots) > 1:
        number = f"Up to {len(slots)} runs"
    threads = slots[0].environment.get("OMP_NUM_THREADS")
    if threads:
        plural = "" if threads == "1" else "s"
        return f"{number} at a time on the CPU, with {threads} thread{plural} each."
    devices: dict[str, None] = {}
    for slot in slots:
        devices[slot.environment[GPUS_VARIABLE]] = None
    return f"{number} at a time on the GPUs {'; '.join(devices)}."


def _gpu_slots(parallel: int, gpus_per_slot: int, gpu_count: int) -> list[Slot]:
    """Assign GPUs to slots in turn. If there are too few, slots share them."""
    visible = os.environ.get(GPUS_VARIABLE)
    devices = visible.split(",") if visible else [str(index) for index in range(gpu_count)]
    next_devices = cycle(devices)
    slots = []
    for _ in range(parallel):
        assigned = ",".join(islice(next_devices, gpus_per_slot))
        slots.append(Slot({GPUS_VARIABLE: assigned}))
    return slots
