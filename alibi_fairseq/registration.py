"""Registers models, tasks, criterions and optimisers with fairseq, once, however this package was found."""

from __future__ import annotations

import importlib.util
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from .errors import BadInput
from .fairseq_fixes import invocation
from .fairseq_fixes.invocation import FOLDER, PACKAGE

#: Parts of this package that need PyTorch at most, or themselves import what needs fairseq.
WITHOUT_FAIRSEQ = {
    *("attention", "positions", "errors", "files"),
    *("results", "paper", "reporting", "data", "evaluation", "experiments", "cli", "__main__"),
}


class BrokenFairseq(ImportError):
    """fairseq is installed but cannot be imported."""


def register(name: str) -> None:
    """Register with fairseq if it is installed.

    fairseq discovers nothing in a package that was imported before it read ``--user-dir``, so
    everything is imported here by name.

    Args:
        name: the name this package was imported under, which fairseq takes from ``--user-dir``. Two
            names would mean two copies.
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

    from .fairseq_fixes import compat, starting

    starting.refuse_separate_jobs()
    compat.apply()
    from . import criterions, models, tasks  # noqa: F401
    from .fairseq_fixes import fused_adam  # noqa: F401


class RegisterFirst(MetaPathFinder):
    """Registers before fairseq, or a part of this package that needs it, is imported.

    Importing fairseq takes seconds, which attention and position methods do without.
    """

    def find_spec(self, name, path=None, target=None) -> ModuleSpec | None:
        package, _, part = name.partition(".")
        part = part.partition(".")[0]
        if name != "fairseq" and (package != PACKAGE or part in WITHOUT_FAIRSEQ):
            return None
        sys.meta_path.remove(self)
        register(PACKAGE)
        # Registering imports most parts; the one that is asked for must not be loaded twice.
        loaded = sys.modules.pop(name, None)
        return ModuleSpec(name, _Loaded(loaded)) if loaded else None


class _Loaded(Loader):
    """Puts a module back that is loaded already."""

    def __init__(self, module: ModuleType):
        self.module, self.spec = module, module.__spec__

    def create_module(self, spec) -> ModuleType:
        return self.module

    def exec_module(self, module) -> None:
        module.__spec__ = self.spec
