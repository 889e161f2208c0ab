"""Registers models, tasks, criterions and optimisers with fairseq, once, however this package was found."""

from __future__ import annotations

import importlib.util

from . import invocation
from .errors import BadInput
from .user_dir import FOLDER, PACKAGE


class BrokenFairseq(ImportError):
    """fairseq is installed but cannot be imported."""


def register(name: str) -> None:
    """Register with fairseq if it is installed.

    fairseq discovers nothing in a package that was imported before it read ``--user-dir``, so
    everything is imported here by name.

    Args:
        name: the name this package was imported under. fairseq takes it from the last part of
            ``--user-dir``, and two names would mean two copies.

    Raises:
        BadInput: the package was imported under another name.
        BrokenFairseq: fairseq is installed but cannot be imported.
    """
    if name != PACKAGE:
        raise BadInput(f"--user-dir must end in {PACKAGE}, not {name}; use --user-dir {FOLDER}.")
    spec = importlib.util.find_spec("fairseq")
    if spec is None or spec.origin is None:  # no origin: a mere folder of that name
        return
    invocation.note_fairseq_import()
    try:
        import fairseq  # noqa: F401
    except Exception as error:
        raise BrokenFairseq(
            f"fairseq is installed, but it cannot be imported ({type(error).__name__}: {error}); "
            f"run `python {FOLDER / 'cli' / 'check_env.py'}` to see how to fix it."
        ) from error

    from . import compat, preflight

    preflight.refuse_separate_jobs()
    compat.apply()
    from . import criterions, models, optimisers, tasks  # noqa: F401
