"""Long work: processes whose results come in order, and progress bars."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from typing import TextIO, TypeVar

from tqdm import tqdm

Item = TypeVar("Item")
Result = TypeVar("Result")

_AHEAD = 2  # items per process that are read before their turn


def cores() -> int:
    """Cores this process may use (a container or SLURM may give fewer than the machine has)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def map_in_order(
    function: Callable[[Item], Result], items: Iterable[Item], workers: int
) -> Iterator[Result]:
    """Apply a function of a module in processes; results come in order, items are read as needed.

    With one worker everything happens in this process. If this process dies in any way, its
    workers end too, so that a run started again never meets the old one.
    """
    if workers == 1:
        yield from map(function, items)
        return
    executor = ProcessPoolExecutor(workers, process_context(), _start)
    waiting: deque[Future[Result]] = deque()
    try:
        for item in items:
            waiting.append(executor.submit(function, item))
            if len(waiting) >= _AHEAD * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


def process_context() -> multiprocessing.context.BaseContext:
    """The start method of worker processes."""
    # Not "fork": libraries that have already run threads here (OpenMP) would hang in the children.
    # A server that has only imported the package forks them, so they share its memory.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["alibi_fairseq", "fairseq.data.indexed_dataset"])
    return context


def _start() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends a worker without a traceback
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    if parent := multiprocessing.parent_process():
        parent.join()
    os._exit(1)


def progress(total: float | None, what: str, unit: str = "B", **more) -> tqdm:
    """A bar on stderr with rate and remaining time; a line every 15 seconds if stderr is a log.

    Args:
        total: number of units; None if unknown.
        unit: ``B`` counts bytes; anything else is a plain count.
    """
    if sys.stderr.isatty():
        kind: dict = {"mininterval": 0.5, "dynamic_ncols": True}
    else:
        # tqdm moves the cursor to bars at other positions than 0.
        kind = {"mininterval": 15, "file": _Log(sys.stderr), "position": 0}
    return tqdm(total=total, desc=what, unit=unit, **{"unit_scale": True, **kind, **more})


class _Log:
    """A log in which each state of a bar is a line of its own, without carriage returns."""

    def __init__(self, stream: TextIO):
        self.stream = stream

    def write(self, text: str) -> None:
        if line := text.strip("\r\n "):
            self.stream.write(line + "\n")

    def flush(self) -> None:
        self.stream.flush()
