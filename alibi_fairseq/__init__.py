"""Length extrapolation of language models with fairseq: ALiBi and the methods it is compared with.

Importing this package registers its models and tasks with fairseq, as ``--user-dir`` requires: at
once if fairseq is imported already, otherwise as soon as it is
(:class:`.registration.RegisterWithFairseq`). The parts that need only PyTorch work without fairseq.
"""

from __future__ import annotations

import sys
from importlib import import_module

from . import errors, registration

__version__ = "0.1.0"

# Public names and their modules, which are imported on first access.
_PUBLIC = {"alibi_slopes": ".positions", "AlibiLanguageModel": ".models"}
__all__ = ["AlibiLanguageModel", "__version__", "alibi_slopes"]

if errors.is_command():
    errors.open_standard_streams()
    errors.install_excepthook()
if sys.modules.get("fairseq"):
    registration.register()
else:
    sys.meta_path.insert(0, registration.RegisterWithFairseq())


def __getattr__(name: str):
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name], __name__), name)
