"""Killing a preparation at a chosen moment, without the process getting a chance to tidy up."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from alibi_fairseq.data import worker_pool


def killed_at(rename: int, after: bool, function: Callable, *args, **kwargs) -> bool:
    """Call ``function`` in a process that is killed at its n-th rename of a file.

    Every file and folder of a preparation appears by a rename, so these are the moments at which
    what is on the disk changes.

    Args:
        rename: counted from 1.
        after: just after the rename instead of just before it.

    Returns:
        True if it was killed, False if it came to its end before.
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
    """Contents of every file below a folder but the manifest, which holds times."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "manifest.json"
    }
