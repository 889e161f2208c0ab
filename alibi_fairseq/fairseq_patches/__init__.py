"""Workarounds for fairseq, and what this project adds to its runs.

Each workaround is one function whose docstring names the upstream issue; importing its module puts it
in place, and :mod:`.compat` imports all of them when this package registers with fairseq. Unless its
docstring says otherwise, it is needed with both releases that ``setup.py`` allows.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable


def patch_method(owner, name: str) -> Callable:
    """Let a function ``f(original, …)`` stand in for ``owner.name``; decorators may be stacked."""

    def decorate(function: Callable) -> Callable:
        original = getattr(owner, name)

        @functools.wraps(original)
        def replacement(*arguments, **keywords):
            return function(original, *arguments, **keywords)

        static = name == "__new__" or isinstance(inspect.getattr_static(owner, name), staticmethod)
        setattr(owner, name, staticmethod(replacement) if static else replacement)
        return function

    return decorate
