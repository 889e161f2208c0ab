"""Workarounds for fairseq, and what this project adds to its runs.

Each workaround is one function whose docstring names the upstream issue. It changes nothing where
it is not needed, and nothing outside of fairseq's own modules. :mod:`.compat` applies them all when
this package registers with fairseq.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable

#: In the order in which they are applied; each returns whether it changed something.
WORKAROUNDS: list[Callable[[], bool]] = []


def workaround(function: Callable[[], bool]) -> Callable[[], bool]:
    """Add a function to ``WORKAROUNDS``."""
    WORKAROUNDS.append(function)
    return function


def around(owner, name: str, needed: Callable[[], bool] = lambda: True) -> Callable:
    """Make a workaround of a function ``f(original, …)`` that stands in for ``owner.name``.

    Args:
        needed: whether to replace it; asked when the workaround is applied.
    """

    def decorate(function: Callable) -> Callable[[], bool]:
        @functools.wraps(function)
        def apply() -> bool:
            return needed() and wrap(owner, name, function)

        return workaround(apply)

    return decorate


def wrap(owner, name: str, wrapper: Callable) -> bool:
    """Replace ``owner.name`` by ``wrapper(original, …)``.

    Returns:
        False if ``owner.name`` was already wrapped by it, and nothing was changed.
    """
    original = inner = getattr(owner, name)
    while inner is not None:
        if getattr(inner, "wrapped_by", None) is wrapper:
            return False
        inner = getattr(inner, "__wrapped__", None)

    @functools.wraps(original)
    def replacement(*arguments, **keywords):
        return wrapper(original, *arguments, **keywords)

    replacement.wrapped_by = wrapper  # type: ignore[attr-defined]
    static = name == "__new__" or isinstance(inspect.getattr_static(owner, name), staticmethod)
    setattr(owner, name, staticmethod(replacement) if static else replacement)
    return True


def mentions(code, text: str) -> bool:
    """Return whether the source of a function or module contains a text (a defect, or its fix)."""
    return text in inspect.getsource(inspect.unwrap(code) if callable(code) else code)
