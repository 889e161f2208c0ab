"""Signals that ask a process to save and stop, and who handles them."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

#: Signals that ask a command to save and stop. A second Ctrl-C stops immediately.
STOP_SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP)


@contextmanager
def handle_stop_signals(handler: Callable[[int], None]) -> Iterator[None]:
    """Handle ``STOP_SIGNALS`` while the block runs (:func:`set_stop_handler`)."""
    earlier = set_stop_handler(handler)
    try:
        yield
    finally:
        for number, earlier_handler in earlier.items():
            signal.signal(number, earlier_handler)


def set_stop_handler(handler: Callable[[int], None]) -> dict[int, Any]:
    """Handle ``STOP_SIGNALS`` from now on, in the main thread only, as Python allows it.

    SIGHUP stays ignored in a process that nohup has started.

    Args:
        handler: called with the number of the signal.

    Returns:
        The earlier handler of each signal that is handled now.
    """
    if threading.current_thread() is not threading.main_thread():
        return {}

    def receive(number, frame) -> None:
        if number == signal.SIGHUP:
            _leave_terminal()
        handler(number)

    earlier: dict[int, Any] = {}
    for number in STOP_SIGNALS:
        under_nohup = number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN
        if not under_nohup:
            earlier[number] = signal.signal(number, receive)
    return earlier


def _leave_terminal() -> None:
    """Print nothing more to a terminal that has been closed; writing there would raise an error."""
    for stream in (1, 2):
        try:
            os.write(stream, b"")
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
