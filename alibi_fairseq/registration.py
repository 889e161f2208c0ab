"""Registers models, tasks, criterions and optimisers with fairseq, once, however this package was found."""

from __future__ import annotations

import importlib.util
import logging
import sys
from importlib import metadata
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from .errors import FOLDER, PACKAGE, UserInputError

#: Parts of this package that need PyTorch at most, or themselves import what needs fairseq.
WITHOUT_FAIRSEQ = {
    *("attention", "positions", "errors", "files"),
    *("results", "paper", "reporting", "data", "evaluation", "runs", "compare", "cli", "__main__"),
}

#: The release that setup.py chooses.
FAIRSEQ = "fairseq==0.12.2" if sys.version_info < (3, 11) else "fairseq-fixed==0.12.3.1"


class FairseqImportError(ImportError):
    """fairseq is installed but cannot be imported. The message says how to mend it."""


def register(name: str) -> None:
    """Register with fairseq if it is installed.

    fairseq discovers nothing in a package that was imported before it read ``--user-dir``, so
    everything is imported here by name.

    Args:
        name: the name this package was imported under, which fairseq takes from ``--user-dir``. Two
            names would mean two copies.
    """
    if name != PACKAGE:
        raise UserInputError(
            f"--user-dir must end in {PACKAGE}, not {name}; use --user-dir {FOLDER}."
        )
    spec = importlib.util.find_spec("fairseq")
    if spec is None or spec.origin is None:  # no origin: a mere folder of that name
        return
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    try:
        # The compiled parts, too, which fail where NumPy is another than at their build.
        import fairseq.data.data_utils_fast
        import fairseq.data.token_block_utils_fast  # noqa: F401
    except Exception as error:
        raise FairseqImportError(
            f"fairseq is installed, but it cannot be imported ({type(error).__name__}: {error}); "
            f"{_advice()}."
        ) from error
    # fairseq 0.12.3 makes the root logger print everything (facebookresearch/fairseq#3592).
    root.handlers[:] = handlers
    root.setLevel(level)

    from .fairseq_patches import apply, distributed  # noqa: F401

    distributed.reject_separate_trainings()
    from . import criterions, models, tasks  # noqa: F401
    from .training import fused_adam  # noqa: F401


def _advice() -> str:
    """What to do about a fairseq that cannot be imported."""
    installed = {each.name for each in metadata.distributions()}
    if "fairseq" in installed and ("fairseq-fixed" in installed or "fixed" in FAIRSEQ):
        return (
            "the official fairseq overwrites the files of fairseq-fixed, and needs Python 3.10: "
            f"`pip uninstall fairseq fairseq-fixed`, then `pip install {FAIRSEQ}`"
        )
    return (
        "run `./scripts/install.sh` in a clone, or `pip install --force-reinstall --no-deps "
        f"--no-build-isolation --no-cache-dir {FAIRSEQ}`, which builds it for this NumPy"
    )


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
