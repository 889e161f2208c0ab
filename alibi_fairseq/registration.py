"""Making the models and tasks known to fairseq, once, whichever way this package was found."""

from __future__ import annotations

import importlib.util
import logging
import sys
from pathlib import Path

from .errors import BadInput

PACKAGE = "alibi_fairseq"
FOLDER = Path(__file__).resolve().parent

#: Whether importing this package imported fairseq, into a program that had not set up its logging.
fairseq_is_ours = False


class BrokenFairseq(ImportError):
    """fairseq is installed, but it cannot be imported."""


def register(name: str) -> None:
    """Register with fairseq if there is one. fairseq finds nothing by itself in a package that was
    imported before ``--user-dir`` was read, so everything is imported here by name.

    Args:
        name: the name this package was imported under. fairseq takes it from the last part of
            ``--user-dir``, and two names would mean two copies.

    Raises:
        BadInput: the package goes by another name.
        BrokenFairseq: fairseq is there but does not import.
    """
    if name != PACKAGE:
        raise BadInput(f"--user-dir must end in {PACKAGE}, not {name}; use --user-dir {FOLDER}.")
    spec = importlib.util.find_spec("fairseq")
    if spec is None or spec.origin is None:  # no origin: a mere folder of that name
        return
    global fairseq_is_ours
    fairseq_is_ours = "fairseq" not in sys.modules and not logging.getLogger().handlers
    try:
        import fairseq  # noqa: F401
    except Exception as error:
        raise BrokenFairseq(
            f"fairseq is installed, but it cannot be imported ({type(error).__name__}: {error}); "
            f"run `python {FOLDER / 'cli' / 'check_env.py'}` to see how to mend it."
        ) from error

    from . import compat, launch

    launch.refuse_separate_jobs()
    compat.apply()
    from . import models, tasks  # noqa: F401


def is_this_package(user_dir: str) -> bool:
    """Whether a ``--user-dir`` leads to this copy of the package; False for another plugin.

    Raises:
        BadInput: it leads to a second copy.
    """
    if Path(user_dir).resolve() == FOLDER:
        return True
    if Path(user_dir).name == PACKAGE:
        raise BadInput(
            f"Two copies of {PACKAGE} meet: {FOLDER} is imported already and --user-dir names "
            f"{user_dir}; leave --user-dir out or uninstall one of them."
        )
    return False
