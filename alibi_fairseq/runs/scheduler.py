"""Scheduling of work items: one after another, or concurrently in slots."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace

from tqdm import tqdm

from .execution import POLL_SECONDS, Slot, Stopped, stop_requests


@dataclass(frozen=True)
class WorkItem:
    """Run or trial to execute.

    Attributes:
        name: name of the run.
        execute: function that executes it in a slot.
        updates: number of updates, from which the remaining time is estimated.
        after: names of the work items that must be complete before this one starts.
    """

    name: str
    execute: Callable[[Slot], None]
    updates: int = 1
    after: tuple[str, ...] = ()


@dataclass
class _ProgressLog:
    """Log of the work items that have started, with the estimated remaining time."""

    items: Sequence[WorkItem]
    start_time: float = field(default_factory=time.monotonic)
    started: int = 0
    finished_updates: int = 0

    def start(self, item: WorkItem) -> None:
        """Log the start of a work item."""
        self.started += 1
        line = f"\n[{self.started}/{len(self.items)}] {item.name}"
        if self.finished_updates:
            # The remaining updates are assumed to take as long as the finished ones.
            seconds_per_update = (time.monotonic() - self.start_time) / self.finished_updates
            remaining_updates = sum(item.updates for item in self.items) - self.finished_updates
            remaining = tqdm.format_interval(seconds_per_update * remaining_updates)
            line += f" (about {remaining} left)"
        tqdm.write(line, file=sys.stdout)

    def finish(self, item: WorkItem) -> None:
        """Count the updates of a finished work item."""
        self.finished_updates += item.updates


def run_all(items: Sequence[WorkItem], slots: Sequence[Slot]) -> None:
    """Run work items as slots become free.

    Args:
        items: work items, each behind those in its ``after``.

    Raises:
        UserInputError, CommandFailedError: the error of the first item that fails. The others are
            asked to stop.
        Stopped: the process was asked to stop, and everything in progress has saved.
    """
    log = _ProgressLog(items)
    if len(slots) > 1:
        _run_concurrently(items, slots, log)
        return
    for item in items:
        log.start(item)
        item.execute(slots[0])
        log.finish(item)


def _run_concurrently(items: Sequence[WorkItem], slots: Sequence[Slot], log: _ProgressLog) -> None:
    """Run work items in threads, one per slot."""
    waiting = list(items)
    free_slots = list(slots)
    finished: set[str] = set()
    running: dict[Future, tuple[WorkItem, Slot]] = {}
    errors: list[BaseException] = []
    with stop_requests() as stop, ThreadPoolExecutor(len(slots)) as pool:
        while running or (waiting and not stop.count):
            ready = [item for item in waiting if finished.issuperset(item.after)]
            while ready and free_slots and not stop.count:
                item = ready.pop(0)
                slot = free_slots.pop(0)
                waiting.remove(item)
                log.start(item)
                future = pool.submit(item.execute, replace(slot, stop=stop))
                running[future] = (item, slot)
            for future in wait(running, POLL_SECONDS, FIRST_COMPLETED).done:
                item, slot = running.pop(future)
                free_slots.append(slot)
                error = future.exception()
                if error is None:
                    finished.add(item.name)
                    log.finish(item)
                else:
                    errors.append(error)
                    stop.request()
    for error in errors:
        if not isinstance(error, Stopped):
            raise error  # the other items were stopped because of it
    if errors or waiting:
        raise Stopped
