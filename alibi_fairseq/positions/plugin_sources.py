"""Version of the plugin that a position method comes from: a hash of its source files."""

from __future__ import annotations

import functools
import hashlib
import sys
from collections.abc import Iterable
from pathlib import Path

from ..errors import PACKAGE
from .spec import METHOD_NAMES


def plugin_sha256(methods: Iterable[str]) -> str | None:
    """Return the hash of the plugins of a model, or None for a model without one.

    It covers all modules of a plugin's package that are imported at the first call in a process. An
    edit has no effect on this process after that, and does not change the hash either.

    Args:
        methods: position methods of the model. Unknown names are ignored.
    """
    if METHOD_NAMES.keys() >= set(methods):
        return None  # without importing the methods
    from .registry import METHODS

    packages = set()
    for name in methods:
        if name in METHODS:
            packages.add(METHODS[name].__module__.partition(".")[0])
    packages.discard(PACKAGE)
    return _sha256_of(frozenset(packages)) if packages else None


@functools.cache
def _sha256_of(packages: frozenset[str]) -> str:
    """Return the hash of the imported source files of packages."""
    digest = hashlib.sha256()
    for name, module in sorted(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name.partition(".")[0] in packages and file and Path(file).is_file():
            content = hashlib.sha256(Path(file).read_bytes()).hexdigest()
            digest.update(f"{name} {content}\n".encode())
    return digest.hexdigest()
