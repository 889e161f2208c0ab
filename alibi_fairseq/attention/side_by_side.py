"""Tasks that take one core each, instead of operations that take all of them.

torch gives every operation to all threads and waits for the last of them before the next begins. A
chain of short operations then spends its time waiting, and where one core reads what another wrote,
cores without a common cache gain nothing from being two. Tasks that write to different tensors need
no waiting: each runs from start to end in one thread, on what lies in that core's own cache.

Numbers too small to be normal floating-point numbers count as zero in these threads. ALiBi's far keys
weigh that little, and on such numbers a CPU's matrix product is an order of magnitude slower.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch


def run_side_by_side(tasks: Sequence[Callable[[], None]]) -> None:
    """Run all tasks, as many at a time as torch has threads, the first ones first.

    Args:
        tasks: independent of each other; no gradients are recorded in them. Put long ones first.
            Where there are fewer tasks than threads, each gets a share of the threads.

    Raises:
        Whatever a task raises.
    """
    threads = torch.get_num_threads()
    workers = max(1, min(threads, len(tasks)))
    inference = torch.is_inference_mode_enabled()  # known to the thread that asks only

    def run(task: Callable[[], None]) -> None:
        with torch.inference_mode(inference):
            task()

    # A process that forked has none of its parent's threads, hence the process in the key.
    list(_pool(os.getpid(), workers, threads // workers).map(run, tasks))


@functools.lru_cache(maxsize=4)
def _pool(process: int, workers: int, threads: int) -> ThreadPoolExecutor:
    """Threads in each of which torch uses ``threads`` threads."""
    ours = torch.get_num_threads()
    started = threading.Barrier(workers + 1)

    def begin() -> None:
        torch.set_grad_enabled(False)
        torch.set_flush_denormal(True)
        torch.get_num_threads()  # torch sets up a thread when it is first asked, and would undo ours
        torch.set_num_threads(threads)  # of this thread, and of threads yet to come
        started.wait()

    pool = ThreadPoolExecutor(workers, thread_name_prefix="attention", initializer=begin)
    for _ in range(workers):
        pool.submit(lambda: None)
    started.wait()
    torch.set_num_threads(ours)  # for threads yet to come
    return pool
