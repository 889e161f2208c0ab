"""Replacing a function of another library by one that calls it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager


def mentions(code, text: str) -> bool:
    """Return whether the source of a function or module contains a text (a defect, or its fix)."""
    return text in inspect.getsource(inspect.unwrap(code) if callable(code) else code)


def wrap(owner, name: str, wrapper: Callable, kind: Callable = lambda function: function) -> bool:
    """Replace ``owner.name`` by ``wrapper(original, …)``, once for each function ``wrapper``.

    Returns:
        False if ``owner.name`` was already wrapped by it, and nothing was changed.
    """
    original = inner = getattr(owner, name)
    while inner is not None:
        if getattr(inner, "wrapped_by", None) == wrapper.__qualname__:
            return False
        inner = getattr(inner, "__wrapped__", None)

    @functools.wraps(original)
    def replacement(*arguments, **keywords):
        return wrapper(original, *arguments, **keywords)

    replacement.wrapped_by = wrapper.__qualname__  # type: ignore[attr-defined]
    setattr(owner, name, kind(replacement))
    return True


def run_within(owner, name: str, context: Callable[[], AbstractContextManager]) -> bool:
    """Make ``owner.name`` run inside a context manager; returns as :func:`wrap` does."""

    def wrapper(function, *arguments, **keywords):
        with context():
            return function(*arguments, **keywords)

    return wrap(owner, name, wrapper)
