"""Leaving a distributed run without a crash."""

from __future__ import annotations

import gc
import sys
import traceback

from torch import distributed


def destroy_process_groups() -> None:
    """Destroy the process groups that fairseq leaves open, and with them gloo's threads.

    gloo's threads drop the tensors of finished collectives, for which they need the interpreter
    lock. An interpreter that is shutting down ends a thread that asks for the lock, in the middle
    of C++ code that cannot be unwound, and the process dies with "terminate called without an
    active exception" (SIGABRT) although its work is done. ``destroy_process_group`` ends no thread
    as long as anything refers to a group: fairseq's cache, or the frames of an uncaught exception.

    Nor may DDP's reducer be the last that refers to one. It is freed with the interpreter lock
    held, then waits for gloo's threads, and these wait for the lock: the job never ends.
    """
    from fairseq.distributed import utils

    cached = vars(utils.get_global_group)
    if not distributed.is_initialized() or "_global_group" not in cached:
        return
    error = getattr(sys, "last_value", None)  # the uncaught exception
    if error is not None and distributed.get_backend() != "gloo":
        return  # NCCL would wait for processes that failed
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__
    groups = [cached.pop("_global_group"), distributed.group.WORLD]
    distributed.destroy_process_group()
    gc.collect()  # the reducers
    groups.clear()  # releases the lock while it waits
