"""Deferred import of libraries that take most of the time of fairseq's import."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from types import ModuleType

#: Modules from which fairseq imports functions for one of its criteria and one of its tasks, which
#: have nothing to do with language models.
MODULES = ("scipy.stats", "sklearn", "sklearn.metrics")


@contextmanager
def defer_imports() -> Iterator[None]:
    """Replace :data:`MODULES` while fairseq is imported; their functions import them when called.

    No upstream issue is known.
    """
    deferred = {name: _DeferredModule(name) for name in MODULES if name not in sys.modules}
    if deferred.keys() >= {"sklearn", "sklearn.metrics"}:
        vars(deferred["sklearn"])["metrics"] = deferred["sklearn.metrics"]
    sys.modules.update(deferred)
    try:
        yield
    finally:
        for name in deferred:
            del sys.modules[name]


class _DeferredModule(ModuleType):
    """Module whose functions import the real module when they are called."""

    def __getattr__(self, name: str) -> Callable:
        if name.startswith("__"):
            raise AttributeError(name)
        return partial(_call, self.__name__, name)


def _call(module: str, function: str, /, *arguments, **keywords):
    return getattr(import_module(module), function)(*arguments, **keywords)
