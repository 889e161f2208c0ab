"""Worker processes with ordered results."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.synchronize import Event
from typing import TypeVar

Result = TypeVar("Result")

#: Items per process that are read ahead.
_AHEAD = 2


def map_in_order(
    function: Callable[..., Result], items: Iterable, workers: int, *arguments: object
) -> Iterator[Result]:
    """Yield ``function(*arguments, item)`` of each item in order, computed in worker processes.

    Items are read as needed. If this process ends in any way, its workers end too, so a rerun never
    meets workers of an earlier run.

    Args:
        function: function that can be pickled.
        items: the items.
        workers: number of processes. 1: everything happens in this process.
        arguments: arguments before the item, the same in all calls.

    Raises:
        BrokenProcessPool: a worker process was killed, or none could start.
    """
    if workers == 1:
        for item in items:
            yield function(*arguments, item)
        return
    context = process_context()
    started = context.Event()
    executor = ProcessPoolExecutor(workers, context, _initialize_worker, (started,))
    waiting: deque[Future[Result]] = deque()
    try:
        for item in items:
            waiting.append(executor.submit(function, *arguments, item))
            if len(waiting) >= _AHEAD * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool as error:
        message = (
            "A worker process was killed, probably for lack of memory; use fewer --workers and "
            "rerun to resume."
        )
        if not started.is_set():
            message = (
                "The worker processes could not start, for the reason printed above; correct it or "
                "pass --workers 1, and rerun to resume."
            )
        # Not a UserInputError, after which a preparation deletes its unfinished work.
        raise BrokenProcessPool(message) from error
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


def process_context() -> multiprocessing.context.BaseContext:
    """Return the multiprocessing context of worker processes."""
    # Not "fork", since libraries with running threads (OpenMP) would hang in the children. The
    # children are forks of a server that has only imported the package, and share its memory.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["alibi_fairseq", "fairseq.data.indexed_dataset"])
    return context


def _initialize_worker(started: Event) -> None:
    started.set()
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends a worker without a traceback
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)
