"""Scheduling of work items: one after another, or concurrently in slots."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace

from tqdm import tqdm

from ..errors import BAD_INPUT, UserInputError
from .child_process import CommandFailedError
from .slots import GPUS_VARIABLE, Slot
from .stoppable_command import POLL_SECONDS
from .stopping import Stopped, stop_requests


@dataclass(frozen=True)
class WorkItem:
    """Run, trial, or evaluation of a run to execute.

    Attributes:
        name: name of the run.
        execute: function that executes it in a slot.
        updates: number of updates, from which the remaining time is estimated; 0 for evaluations.
        after: names of the work items that must be complete before this one starts.
        one_gpu: True if it uses a single GPU of a slot.
    """

    name: str
    execute: Callable[[Slot], None]
    updates: int
    after: tuple[str, ...] = ()
    one_gpu: bool = False


@dataclass
class _ProgressLog:
    """Log of the work items that have started, with the estimated remaining time.

    Attributes:
        items: work items to run.
        failures: those of them that failed or will not start.
        completed: number of work items that were complete before, which count for the numbering.
    """

    items: Sequence[WorkItem]
    failures: _Failures
    completed: int = 0
    start_time: float = field(default_factory=time.monotonic)
    started: int = 0
    finished_updates: int = 0

    def start(self, item: WorkItem) -> None:
        """Log the start of a work item."""
        self.started += 1
        number = self.completed + self.started
        total = self.completed + len(self.items)
        line = f"\n[{number}/{total}] {item.name}"
        if self.finished_updates:
            remaining = tqdm.format_interval(self._remaining_seconds())
            line += f" (about {remaining} left)"
        tqdm.write(line, file=sys.stdout)

    def _remaining_seconds(self) -> float:
        """Estimate the remaining time: an update takes as long as those that have finished."""
        seconds = time.monotonic() - self.start_time
        remaining_updates = -self.finished_updates
        for item in self.items:
            if item.name not in self.failures.reasons:
                remaining_updates += item.updates
        return seconds / self.finished_updates * remaining_updates

    def finish(self, item: WorkItem) -> None:
        """Count the updates of a work item that has finished."""
        self.finished_updates += item.updates


@dataclass
class _Failures:
    """Work items that failed, or will not start because another one failed.

    Attributes:
        items: all work items.
        reasons: reason of each work item, by name.
        code: exit code of the first one that failed.
    """

    items: Sequence[WorkItem]
    reasons: dict[str, str] = field(default_factory=dict)
    code: int = 0

    def add(self, item: WorkItem, error: CommandFailedError | UserInputError) -> None:
        """Record and log that a work item failed."""
        self.reasons[item.name] = str(error)
        if self.code == 0:
            self.code = BAD_INPUT
            if isinstance(error, CommandFailedError):
                self.code = error.code
        if len(self.items) > 1:
            tqdm.write(f"\n{item.name} failed. {error}", file=sys.stdout)
        for later in self.items:
            for name in later.after:
                if name in self.reasons:
                    reason = f"not started, because {name} failed."
                    self.reasons.setdefault(later.name, reason)

    def raise_any(self) -> None:
        """Raise CommandFailedError if a work item failed."""
        if not self.reasons:
            return
        if len(self.reasons) == 1:
            (reason,) = self.reasons.values()
            raise CommandFailedError(reason, self.code)
        kinds = "runs and trials"
        if any(item.one_gpu for item in self.items):
            kinds = "trainings and evaluations"
        lines = [f"{len(self.reasons)} of {len(self.items)} {kinds} did not complete:"]
        for name, reason in self.reasons.items():
            lines.append(f"  {name}: {reason}")
        lines.append("Rerun the same command to repeat only these.")
        raise CommandFailedError("\n".join(lines), self.code)


def run_all(items: Sequence[WorkItem], slots: Sequence[Slot], completed: int = 0) -> None:
    """Run work items as slots become free.

    If one fails, those in whose ``after`` it is do not start, and all others are finished.

    Args:
        items: work items, each behind those in its ``after``.
        completed: number of work items that were complete before, for the log.

    Raises:
        CommandFailedError: a work item failed. The message has the reason of each.
        Stopped: the process was asked to stop, and everything in progress has saved.
    """
    failures = _Failures(items)
    log = _ProgressLog(items, failures, completed)
    if len(slots) > 1 or any(item.one_gpu for item in items):
        _run_concurrently(items, slots, log, failures)
    else:
        was_stopping = False
        for item in items:
            if item.name in failures.reasons:
                continue
            if was_stopping:
                raise Stopped
            log.start(item)
            try:
                item.execute(slots[0])
            except (CommandFailedError, UserInputError) as error:
                failures.add(item, error)
                was_stopping = isinstance(error, CommandFailedError) and error.was_stopping
            else:
                log.finish(item)
    failures.raise_any()


def _run_concurrently(
    items: Sequence[WorkItem], slots: Sequence[Slot], log: _ProgressLog, failures: _Failures
) -> None:
    """Run work items in threads, each in a slot or on one GPU of a slot.

    Raises:
        Stopped: as :func:`run_all`.
    """
    waiting = list(items)
    free_slots = _SlotPool(slots)
    finished: set[str] = set()
    running: dict[Future, tuple[WorkItem, int, Slot]] = {}
    errors: list[BaseException] = []
    with stop_requests() as stop, ThreadPoolExecutor(len(items)) as pool:
        while running or (waiting and not stop.count):
            waiting = [item for item in waiting if item.name not in failures.reasons]
            ready = [item for item in waiting if finished.issuperset(item.after)]
            for item in ready:
                taken = None if stop.count else free_slots.take(item.one_gpu)
                if taken is None:
                    break  # in order, so that a run never waits for later evaluations
                index, slot = taken
                waiting.remove(item)
                log.start(item)
                future = pool.submit(item.execute, replace(slot, stop=stop))
                running[future] = (item, index, slot)
            for future in wait(running, POLL_SECONDS, FIRST_COMPLETED).done:
                item, index, slot = running.pop(future)
                free_slots.give_back(index, slot)
                error = future.exception()
                if error is None:
                    finished.add(item.name)
                    log.finish(item)
                elif isinstance(error, CommandFailedError | UserInputError):
                    failures.add(item, error)
                else:
                    errors.append(error)
                    stop.request()
    for error in errors:
        if not isinstance(error, Stopped):
            raise error  # the other items were stopped because of it
    if errors or waiting:
        raise Stopped


@dataclass
class _SlotPool:
    """Slots that concurrent work takes and gives back, whole or a single GPU of one.

    Attributes:
        slots: all slots.
    """

    slots: Sequence[Slot]
    _free_devices: list[list[str]] = field(init=False)

    def __post_init__(self) -> None:
        self._free_devices = [_devices(slot) for slot in self.slots]

    def take(self, one_gpu: bool) -> tuple[int, Slot] | None:
        """Return the index of a slot, and that slot, or the part of it with one GPU.

        None: nothing is free. A single GPU is taken from the slot with the fewest free ones, so
        that others stay whole.
        """
        by_free_devices = sorted(range(len(self.slots)), key=lambda i: len(self._free_devices[i]))
        for index in by_free_devices:
            slot = self.slots[index]
            free = self._free_devices[index]
            count = len(_devices(slot))
            if len(free) == count and (count == 1 or not one_gpu):
                free.clear()
                return index, slot
            if free and one_gpu:
                return index, Slot({GPUS_VARIABLE: free.pop(0)})
        return None

    def give_back(self, index: int, slot: Slot) -> None:
        """Make what :meth:`take` returned free again."""
        self._free_devices[index] += _devices(slot)


def _devices(slot: Slot) -> list[str]:
    """Return the GPUs of a slot. The cores of a CPU are one device."""
    return slot.environment.get(GPUS_VARIABLE, "cpu").split(",")
