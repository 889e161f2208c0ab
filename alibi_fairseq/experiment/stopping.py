"""Stopping on request: signals, and the exception for work that has saved its progress.

Work in the main thread handles signals itself. Work in other threads cannot: there, the main thread
records a :class:`StopRequest`, which every :class:`.Slot` shares.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ..stop_signals import handle_stop_signals


class Stopped(Exception):
    """Exception for work that was asked to stop and has saved its progress."""


@dataclass
class StopRequest:
    """Request to stop this process.

    Attributes:
        count: number of requests: 0 for none, 1 to save and stop, more to stop immediately. Signals
            other than Ctrl-C count once.
        signal: the first signal that was received.
    """

    count: int = 0
    signal: signal.Signals | None = None

    def receive(self, number: int) -> None:
        """Record a signal."""
        if self.signal is None:
            self.signal = signal.Signals(number)
        repeated = self.count > 0 and number != signal.SIGINT
        if repeated:
            return
        self.count += 1
        action = "stopping at once" if self.count > 1 else "stopping …"
        print(f"launcher: {signal.Signals(number).name}: {action}", file=sys.stderr, flush=True)

    def request(self) -> None:
        """Request saving and stopping without a signal."""
        if self.count == 0:
            self.count = 1


@contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Record stop signals instead of acting on them while the block runs."""
    stop = StopRequest()
    with handle_stop_signals(stop.receive):
        yield stop


@contextmanager
def stop_at_once() -> Iterator[None]:
    """Raise Stopped at a stop signal while the block runs."""

    def stop(number: int) -> None:
        raise Stopped

    with handle_stop_signals(stop):
        yield
