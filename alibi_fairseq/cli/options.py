"""Command-line options from the fields of a dataclass, and the dataclass from what the user typed."""

from __future__ import annotations

import argparse
import types
import typing
from collections.abc import Sequence
from dataclasses import MISSING, fields
from typing import Any

from ..data.pipeline import option

__all__ = ["CliCommand", "add_fields", "filled", "names", "option"]


def names(text: str) -> list[str]:
    """``valid,test`` → ["valid", "test"], each once."""
    items = [item.strip() for item in text.split(",")]
    if "" in items:
        raise ValueError
    return list(dict.fromkeys(items))


class CliCommand:
    """A command: a dataclass of its options that is called."""

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        add_fields(parser, cls)

    @classmethod
    def run(cls, args: argparse.Namespace) -> int | None:
        return filled(cls, args)()

    def __call__(self) -> int | None:
        raise NotImplementedError


def add_fields(parser: argparse.ArgumentParser, kind: type) -> None:
    """Add an option for each field of a dataclass whose metadata has a ``help``."""
    hints = typing.get_type_hints(kind)
    for each in fields(kind):
        if "help" not in each.metadata:
            continue
        keywords = dict(each.metadata)
        flag = keywords.pop("flag", "--" + each.name.replace("_", "-"))
        of, several = _type_of(hints[each.name])
        if several and not {"nargs", "action", "type"} & {*keywords}:
            keywords["nargs"] = "+"
        if each.default is False:
            keywords["action"] = "store_true"
        else:
            keywords.setdefault("type", of)
        if each.default is MISSING and "required" not in keywords:
            parser.add_argument(each.name, **{"metavar": each.name.upper(), **keywords})
            continue
        default = None if each.default is MISSING else each.default
        if default == ():
            default = []
        if default and "(default" not in keywords["help"]:
            keywords["help"] += " (default: %(default)s)"
        parser.add_argument(flag, dest=each.name, default=default, **keywords)


def filled(kind: type, args: object) -> Any:
    """A dataclass whose fields have the values of the attributes with their names."""
    given = vars(args)
    return kind(**{each.name: given[each.name] for each in fields(kind) if each.name in given})


def _type_of(hint: Any) -> tuple[type, bool]:
    """The type of one value, and whether there may be several."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _type_of(parts[0])
    if origin in (list, Sequence):
        return _type_of(parts[0])[0], True
    return (hint if isinstance(hint, type) else str), False
