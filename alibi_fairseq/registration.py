"""Registration of models, tasks, criterions, and optimizers with fairseq, on any way of import."""

from __future__ import annotations

import importlib.util
import logging
import sys
from importlib import metadata
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from .errors import PACKAGE

#: Parts of this package that need PyTorch at most, or themselves import what needs fairseq.
WITHOUT_FAIRSEQ = {
    "attention",
    "positions",
    "completion_marker",
    "errors",
    "files",
    "machine",
    "options",
    "progress_bar",
    "results",
    "paper",
    "reporting",
    "data",
    "evaluation",
    "runs",
    "compare",
    "checks",
    "cli",
    "huggingface",
    "__main__",
}

#: The release that setup.py chooses.
FAIRSEQ = "fairseq==0.12.2" if sys.version_info < (3, 11) else "fairseq-fixed==0.12.3.1"


class FairseqImportError(ImportError):
    """Error of an installed fairseq that cannot be imported. The message says how to repair it."""


def register() -> None:
    """Register with fairseq if it is installed.

    fairseq discovers nothing in a package that was imported before it read ``--user-dir``, so
    everything is imported here by name.
    """
    spec = importlib.util.find_spec("fairseq")
    if spec is None or spec.origin is None:  # no origin: a mere folder of that name
        return
    root = logging.getLogger()
    handlers = list(root.handlers)
    level = root.level
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

    from .fairseq_patches import apply, startup  # noqa: F401

    startup.reject_plain_hydra_train()
    from . import criterions, models, tasks  # noqa: F401
    from .training import fused_adam  # noqa: F401


def _advice() -> str:
    """Return the command that repairs a fairseq that cannot be imported."""
    installed = {distribution.name for distribution in metadata.distributions()}
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
    """Import hook that registers this package when fairseq is first needed.

    Registering imports fairseq, which takes seconds and which attention and position methods do
    without. ``import alibi_fairseq`` therefore only puts this hook in front of Python's finders,
    which Python asks for every module that is not imported yet. The first time it is asked for
    fairseq, or for a part of this package that needs fairseq, it registers and removes itself.
    """

    def find_spec(self, name, path=None, target=None) -> ModuleSpec | None:
        """Register if the module needs fairseq; otherwise leave it to Python's finders.

        Args:
            name: full name of the module to import.
            path: ignored.
            target: ignored.
        """
        package, _, rest = name.partition(".")
        part = rest.partition(".")[0]
        is_light = package != PACKAGE or part in WITHOUT_FAIRSEQ
        if name != "fairseq" and is_light:
            return None
        sys.meta_path.remove(self)
        register()
        # Registering may have imported the requested module, which must not be executed twice.
        module = sys.modules.pop(name, None)
        if module is None:
            return None
        return ModuleSpec(name, _ImportedModuleLoader(module))


class _ImportedModuleLoader(Loader):
    """Loader of a module that is imported already."""

    def __init__(self, module: ModuleType):
        self.module = module
        self.spec = module.__spec__

    def create_module(self, spec) -> ModuleType:
        return self.module

    def exec_module(self, module) -> None:
        # Python has replaced the spec of the module by the spec of the hook.
        module.__spec__ = self.spec
