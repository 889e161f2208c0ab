"""Length extrapolation of language models with fairseq: ALiBi and the methods it is compared with.

Importing this package registers its models and tasks with fairseq, which is what ``--user-dir``
does. Without fairseq the parts that need PyTorch alone can still be used.
"""

from __future__ import annotations

from importlib import import_module

from . import errors, invocation, registration

__version__ = "0.1.0"

# Public names and where they live; imported when asked for.
_PUBLIC = {"alibi_slopes": ".positions", "AlibiLanguageModel": ".models"}
__all__ = ["AlibiLanguageModel", "__version__", "alibi_slopes"]

if invocation.is_command():
    errors.install_excepthook()
if not invocation.asks_for_help():  # importing fairseq and PyTorch takes seconds
    with errors.interruptible():
        registration.register(__name__)


def __getattr__(name: str):
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name], __name__), name)
