"""Length extrapolation of language models with fairseq: ALiBi and the methods it is compared with.

Importing this package registers its models and tasks with fairseq, which is what ``--user-dir``
does; at once if fairseq is there, otherwise when it is first needed. The parts that need PyTorch alone
can be used without it.
"""

from __future__ import annotations

import sys
from importlib import import_module

from . import errors, registration

__version__ = "0.1.0"

# Public names and where they live; imported when asked for.
_PUBLIC = {"alibi_slopes": ".positions", "AlibiLanguageModel": ".models"}
__all__ = ["AlibiLanguageModel", "__version__", "alibi_slopes"]

if errors.is_command():
    errors.open_standard_streams()
    errors.install_excepthook()
if "fairseq" in sys.modules or __name__ != errors.PACKAGE:
    registration.register(__name__)
else:
    sys.meta_path.insert(0, registration.RegisterFirst())


def __getattr__(name: str):
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name], __name__), name)
