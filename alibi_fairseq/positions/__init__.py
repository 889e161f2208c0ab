"""Position methods by name. docs/adding-a-position-method.md describes how to add one.

PyTorch is imported when a method is first needed, because reports only need the names of methods
(:mod:`.spec`).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .interface import *  # noqa: F403


def __getattr__(name: str) -> Any:
    return getattr(import_module(".interface", __name__), name)
