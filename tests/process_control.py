"""Preparations that are killed at a chosen moment with SIGKILL, which prevents cleanup."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from alibi_fairseq.data import worker_pool


def killed_at(rename: int, after: bool, function: Callable, *args, **kwargs) -> bool:
    """Call ``function`` in a process that is killed at its n-th rename of a file.

    Every file and folder of a preparation appears by a rename, so the files on disk change at these
    moments.

    Args:
        rename: number of the rename, counted from 1.
        after: kill just after the rename instead of just before it.

    Returns:
        True if the process was killed, False if it completed before.
    """
    process = worker_pool.process_context().Process(
        target=_run, args=(rename, after, function, args, kwargs)
    )
    process.start()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL), f"failed with {process.exitcode}"
    return process.exitcode != 0


def _run(rename: int, after: bool, function: Callable, args: tuple, kwargs: dict) -> None:
    original = os.replace
    calls = 0

    def replace(source, target):
        nonlocal calls
        calls += 1
        if calls == rename and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        original(source, target)
        if calls == rename:
            os.kill(os.getpid(), signal.SIGKILL)

    os.replace = replace
    function(*args, **kwargs)


def files_of(folder) -> dict[str, bytes]:
    """Return the contents of all files below a folder except manifests, which contain times."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "manifest.json"
    }
