"""Conversion between dataclasses and command-line options."""

from __future__ import annotations

import argparse
import functools
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, fields
from typing import Any

from ..errors import usage_error
from ..options import names, option

__all__ = [
    "CliCommand",
    "Parser",
    "add_fields",
    "add_settings",
    "fill_dataclass",
    "names",
    "option",
    "option_group",
    "plugin_option",
    "setting_flags",
]


class Parser(argparse.ArgumentParser):
    """Parser whose errors are raised as :class:`UserInputError`."""

    def error(self, message):
        """Raise an error instead of printing the usage."""
        raise usage_error(message, self.prog)


class CliCommand:
    """Base of the commands: a dataclass of options, which is called to run the command."""

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        """Add the options of the command to a parser."""
        add_fields(parser, cls)

    @classmethod
    def run(cls, args: argparse.Namespace) -> int | None:
        """Run the command with parsed options; return its exit code, or None for 0."""
        return fill_dataclass(cls, args)()

    def __call__(self) -> int | None:
        """Run the command; return its exit code, or None for 0."""
        raise NotImplementedError


def add_fields(parser: argparse.ArgumentParser, kind: type) -> None:
    """Add an option for each field of a dataclass whose metadata has a ``help``.

    The metadata may also have a ``group``, the heading of the option in the help.
    """
    hints = typing.get_type_hints(kind)
    for field in fields(kind):
        if "help" not in field.metadata:
            continue
        keywords = dict(field.metadata)
        flag = keywords.pop("flag", "--" + field.name.replace("_", "-"))
        group = option_group(parser, keywords.pop("group", None))
        value_type, several = _value_type(hints[field.name])
        if several and keywords.keys().isdisjoint({"nargs", "action", "type"}):
            keywords["nargs"] = "+"
        if field.default is False:
            keywords["action"] = "store_true"
        else:
            keywords["type"] = _explained(keywords.get("type", value_type))
            if value_type is int:
                keywords.setdefault("metavar", "N")
        if field.default is MISSING and "required" not in keywords:
            keywords.setdefault("metavar", field.name.upper())
            group.add_argument(field.name, **keywords)
            continue
        default = None if field.default is MISSING else field.default
        if default == ():
            default = []
        if default and "(default" not in keywords["help"]:
            keywords["help"] += " (default: %(default)s)"
        group.add_argument(flag, dest=field.name, default=default, **keywords)


def add_settings(parser: argparse.ArgumentParser, kind: type) -> None:
    """Add an option for each field of a pydantic dataclass that has one.

    Its value is None unless it is given. Otherwise it is text, or names, for pydantic to read.
    """
    hints = typing.get_type_hints(kind)
    for field in fields(kind):
        flag = setting_flag(field)
        if flag is None:
            continue
        description = field.metadata["help"]
        default = field.default
        keywords: dict[str, Any] = {}
        if isinstance(default, tuple) and default:
            default = ",".join(map(str, default))
            keywords["type"] = names
        choices = _literal_values(hints[field.name])
        if choices:
            keywords["choices"] = choices
        else:
            keywords["metavar"] = field.metadata["metavar"]
        if choices and default is None:  # like `eval`, which takes the first without a value
            keywords.update(nargs="?", const=choices[0])
            description = f"{description} (without a value: {choices[0]})"
        if default:
            description = f"{description} (default: {default})"
        group = option_group(parser, field.metadata["group"])
        group.add_argument(flag, dest=field.name, help=description, **keywords)


def setting_flag(field: Field) -> str | None:
    """Return the option of a field of a pydantic dataclass; None if only YAML can set it."""
    return field.metadata.get("flag", "--" + field.name.replace("_", "-"))


def setting_flags(kind: type, group: str | None = None) -> dict[str, str]:
    """Return the options of a pydantic dataclass by field, of all groups or of one."""
    flags = {}
    for field in fields(kind):
        flag = setting_flag(field)
        if flag is not None and group in (None, field.metadata["group"]):
            flags[field.name] = flag
    return flags


def _literal_values(hint: Any) -> tuple[str, ...]:
    """Return the values of ``Literal[…]`` or ``Literal[…] | None``; empty for any other type."""
    for part in (hint, *typing.get_args(hint)):
        if typing.get_origin(part) is typing.Literal:
            return typing.get_args(part)
    return ()


def plugin_option(group: str | None = None) -> Any:
    """Return the field of the option ``--user-dir``, plugins that are imported first."""
    return option(
        "plugins that import alibi_fairseq, for example one with a position method",
        None,
        metavar="FOLDER,…",
        group=group,
    )


def option_group(parser: argparse.ArgumentParser, title: str | None) -> argparse._ActionsContainer:
    """Return the group of options with a title, which is added to the parser if it is new.

    Without a title, it is the parser itself.
    """
    if title is None:
        return parser
    for group in parser._action_groups:
        if group.title == title:
            return group
    return parser.add_argument_group(title)


def fill_dataclass(kind: type, args: object) -> Any:
    """Create a dataclass from parsed arguments."""
    parsed = vars(args)
    values = {}
    for field in fields(kind):
        if field.name in parsed:
            values[field.name] = parsed[field.name]
    return kind(**values)


def _explained(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a type whose ValueError argparse prints, instead of the name of the function."""
    if isinstance(parse, type):
        return parse

    @functools.wraps(parse)
    def read(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{error}, not '{text[:60]}'") from error

    return read


def _value_type(hint: Any) -> tuple[type, bool]:
    """Return the type of one value, and True if the option takes several."""
    origin = typing.get_origin(hint)
    parts = typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _value_type(parts[0])
    if origin in (list, Sequence):
        value_type, _ = _value_type(parts[0])
        return value_type, True
    if isinstance(hint, type):
        return hint, False
    return str, False
