"""Run independent tasks in parallel, one thread each, instead of parallelising every operation.

torch splits each operation over all threads and synchronises before the next one. For a chain of
short operations most of the time is then spent waiting, and cores without a shared cache gain
nothing when one reads what another wrote. Tasks that write to different tensors need no
synchronisation: each runs from start to end in one thread, on data in that core's own cache.

Denormal numbers are flushed to zero in these threads: ALiBi's distant keys have weights that small,
and a CPU's matrix product is an order of magnitude slower on denormals.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch


def run_parallel(tasks: Sequence[Callable[[], None]]) -> None:
    """Run all tasks, at most ``torch.get_num_threads()`` at a time, in the given order.

    Args:
        tasks: independent of each other; gradients are not recorded. Put long ones first. With
            fewer tasks than threads, each task gets an equal share of the threads.

    Raises:
        Whatever a task raises.
    """
    threads = torch.get_num_threads()
    workers = max(1, min(threads, len(tasks)))
    inference = torch.is_inference_mode_enabled()  # thread-local, so it has to be passed on

    def run(task: Callable[[], None]) -> None:
        with torch.inference_mode(inference), torch.no_grad():  # the former may turn gradients on
            task()

    # The process id is part of the key because a forked process has none of its parent's threads.
    list(_pool(os.getpid(), workers, threads // workers).map(run, tasks))


@functools.lru_cache(maxsize=4)
def _pool(process: int, workers: int, threads: int) -> ThreadPoolExecutor:
    """A pool in whose threads torch uses ``threads`` threads."""
    threads_before = torch.get_num_threads()
    started = threading.Barrier(workers + 1)

    def initialise() -> None:
        torch.set_flush_denormal(True)
        torch.get_num_threads()  # the first call initialises the thread and would undo the next one
        torch.set_num_threads(threads)  # also the default of threads created later
        started.wait()

    pool = ThreadPoolExecutor(workers, thread_name_prefix="attention", initializer=initialise)
    for _ in range(workers):
        pool.submit(lambda: None)
    started.wait()
    torch.set_num_threads(threads_before)  # restores that default
    return pool
