"""Workarounds for fairseq, PyTorch, NumPy, and hydra.

Each is one function whose docstring names the upstream issue. Importing its module puts it in
place, and :mod:`.apply` imports all of them when this package registers with fairseq. Unless its
docstring says otherwise, it is needed with both releases that ``setup.py`` allows.
:mod:`.install_hooks` also adds :mod:`..hooks` to fairseq's training loop, and calls what needs the
command's options or the trainer: :mod:`..startup_checks`, and functions of :mod:`.distributed`,
:mod:`.resumed_training`, and :mod:`.safe_loading`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable


def patch_method(owner, name: str) -> Callable:
    """Replace ``owner.name`` by the decorated ``f(original, …)``; decorators may be stacked.

    Args:
        owner: module or class.
        name: of a function or method.
    """

    def decorate(function: Callable) -> Callable:
        original = getattr(owner, name)

        @functools.wraps(original)
        def replacement(*arguments, **keywords):
            return function(original, *arguments, **keywords)

        static = name == "__new__" or isinstance(inspect.getattr_static(owner, name), staticmethod)
        setattr(owner, name, staticmethod(replacement) if static else replacement)
        return function

    return decorate


# At the end, because the workarounds that it puts in place need the function above.
import fairseq  # noqa: E402, F401  (registers this package)
