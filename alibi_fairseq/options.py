"""Command-line options as fields of dataclasses."""

from __future__ import annotations

from dataclasses import MISSING, field
from typing import Any


def option(help: str, default: Any = MISSING, **more: Any) -> Any:
    """Return a dataclass field that is an option of a command.

    A field without a default is a positional argument, or an option with ``required=True``.

    Args:
        help: help text.
        default: value without the option.
        more: further arguments of ``add_argument``. ``flag`` names the option if its name differs
            from that of the field, and ``group`` is its heading in the help. The type is that of
            the annotation; a sequence takes several values.
    """
    return field(default=default, metadata={"help": help, **more})


def names(text: str) -> list[str]:
    """Return ``valid,test`` as ["valid", "test"], each name once.

    Raises:
        ValueError: a name is empty.
    """
    items = [item.strip() for item in text.split(",")]
    if "" in items:
        raise ValueError
    return list(dict.fromkeys(items))


def positive(text: str) -> int:
    """Return a positive integer.

    Raises:
        ValueError: the text is anything else.
    """
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def percentage(text: str) -> float:
    """Return a percentage above 0 and at most 25.

    Raises:
        ValueError: the text is anything else.
    """
    percent = float(text)
    if not 0 < percent <= 25:
        raise ValueError
    return percent
