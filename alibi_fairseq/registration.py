"""Registration of models, tasks, criterions, and optimizers with fairseq, on any way of import."""

from __future__ import annotations

import importlib.util
import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

#: The release that setup.py chooses.
FAIRSEQ = "fairseq==0.12.2" if sys.version_info < (3, 11) else "fairseq-fixed==0.12.3.1"


class FairseqImportError(ImportError):
    """Error of an installed fairseq that cannot be imported. The message says how to repair it."""


class RegisterWithFairseq(MetaPathFinder):
    """Import hook that registers this package right after fairseq is imported, by whom it may be.

    ``alibi_fairseq/__init__.py`` installs it.

    Importing fairseq takes seconds, and attention and position methods do without it. Whatever
    needs it imports it: the subpackages whose modules are registered or called by fairseq do so
    first of all, so that their modules are imported in one order.
    """

    def find_spec(self, name, path=None, target=None) -> ModuleSpec | None:
        """Return the spec of fairseq, whose loader also registers; None for any other module."""
        if name != "fairseq":
            return None
        sys.meta_path.remove(self)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            sys.meta_path.insert(0, self)
        # Without an origin, it is a mere folder of that name.
        if spec is None or spec.origin is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def execute_and_register(module: ModuleType) -> None:
            sys.meta_path.remove(self)
            with explained_import(), kept_logging(), silenced_torchscript_advice():
                execute(module)
            register()

        spec.loader.exec_module = execute_and_register  # type: ignore[method-assign]
        return spec


@contextmanager
def explained_import() -> Iterator[None]:
    """Say how to repair fairseq if it is installed but cannot be imported in the block.

    Raises:
        FairseqImportError: it cannot be imported.
    """
    try:
        yield
    except Exception as error:
        raise FairseqImportError(
            f"fairseq is installed, but it cannot be imported ({type(error).__name__}: {error}); "
            f"{_advice()}."
        ) from error


@contextmanager
def kept_logging() -> Iterator[None]:
    """Restore the configuration of the root logger after the block, which imports fairseq.

    fairseq 0.12.3 makes it print everything (facebookresearch/fairseq#3592).
    """
    root = logging.getLogger()
    handlers = list(root.handlers)
    level = root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@contextmanager
def silenced_torchscript_advice() -> Iterator[None]:
    """Silence PyTorch's advice against TorchScript in the block, which imports fairseq.

    PyTorch 2.14 and later print it for each of five functions (pytorch/pytorch#177239).
    ``fairseq-train`` and its siblings still print it: they import fairseq before this package.
    """
    with warnings.catch_warnings():
        # A DeprecationWarning until PyTorch 2.13, then a FutureWarning.
        warnings.filterwarnings("ignore", r"`torch\.jit\.script`")
        yield


def register() -> None:
    """Change in fairseq what needs to be changed, and register everything.

    fairseq discovers nothing in a package that was imported before it read ``--user-dir``, so
    everything is imported here by name.
    """
    # The compiled parts fail where NumPy is another than at their build.
    with explained_import():
        import fairseq.data.data_utils_fast
        import fairseq.data.token_block_utils_fast  # noqa: F401
    from .plugin.patches import apply  # noqa: F401
    from .plugin.startup_checks import reject_plain_hydra_train

    reject_plain_hydra_train()
    from . import models  # noqa: F401
    from .plugin import (  # noqa: F401
        chunked_losses,
        fused_adam,
        segment_language_modeling,
    )


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
