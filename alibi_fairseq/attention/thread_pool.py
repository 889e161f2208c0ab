"""Parallel execution of independent tasks, one thread each.

PyTorch splits each operation over all threads and synchronizes before the next one. In a chain of
short operations most of the time is then spent waiting, and cores without a shared cache gain
nothing when one reads what another wrote. Tasks that write to different tensors need no
synchronization: each runs from start to end in one thread, on data in the cache of one core.

These threads flush denormal numbers to zero: ALiBi gives distant keys such small weights, and
matrix products of a CPU are an order of magnitude slower on denormals.
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
        tasks: independent functions, long ones first. Gradients are not recorded. With fewer tasks
            than threads, the threads are divided equally among the tasks.

    Raises:
        Exception: the exception of a task.
    """
    threads = torch.get_num_threads()
    workers = max(1, min(threads, len(tasks)))
    inference = torch.is_inference_mode_enabled()  # thread-local, so it has to be passed on

    def run(task: Callable[[], None]) -> None:
        with torch.inference_mode(inference), torch.no_grad():  # the former may turn gradients on
            task()

    # A forked process has none of its parent's threads, so it needs a separate pool.
    pool = _pool(os.getpid(), workers, threads // workers)
    list(pool.map(run, tasks))  # waits, and raises the exceptions of tasks


@functools.lru_cache(maxsize=4)
def _pool(process: int, workers: int, threads: int) -> ThreadPoolExecutor:
    """Return a pool whose workers each use ``threads`` threads of PyTorch.

    ``process`` is only part of the cache's key.
    """
    threads_before = torch.get_num_threads()
    started = threading.Barrier(workers + 1)

    def initialize() -> None:
        torch.set_flush_denormal(True)
        torch.get_num_threads()  # the first call initializes the thread and would undo the next
        torch.set_num_threads(threads)  # also the default of threads created later
        started.wait()

    pool = ThreadPoolExecutor(workers, thread_name_prefix="attention", initializer=initialize)
    for _ in range(workers):
        pool.submit(lambda: None)
    started.wait()
    torch.set_num_threads(threads_before)  # restores that default
    return pool
