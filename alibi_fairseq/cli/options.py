"""Conversion between dataclasses and command-line options."""

from __future__ import annotations

import argparse
import functools
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, fields
from typing import Any

from ..errors import UserInputError, describe_invalid, unmet, usage_error
from ..options import option, option_flag


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

    The metadata may also have a ``group``, the heading of the option in the help. If it is a
    dataclass of pydantic, pydantic converts the values and knows the defaults. Parsed arguments
    then have strings or lists of strings, and only those of options that are given.
    """
    hints = typing.get_type_hints(kind)
    for field in fields(kind):
        flag = option_flag(field)
        if flag is None:
            continue
        keywords = _keywords(field, hints[field.name], is_read_later=_is_of_pydantic(kind))
        group = option_group(parser, field.metadata.get("group"))
        if field.default is MISSING and "required" not in keywords:
            keywords.setdefault("metavar", field.name.upper())
            group.add_argument(field.name, **keywords)
        else:
            group.add_argument(flag, dest=field.name, **keywords)


def option_flags(kind: type) -> dict[str, str]:
    """Return the flags of a dataclass by field."""
    flags = {}
    for field in fields(kind):
        flag = option_flag(field)
        if flag is not None:
            flags[field.name] = flag
    return flags


def _keywords(field: Field, hint: Any, is_read_later: bool) -> dict[str, Any]:
    """Return the arguments of ``add_argument`` for a field.

    Args:
        hint: type of the field.
        is_read_later: True if pydantic reads the value, and knows the default.
    """
    keywords = {key: field.metadata[key] for key in field.metadata if key not in ("flag", "group")}
    value_type, several = _value_type(hint)
    choices = _literal_values(hint)
    if several and keywords.keys().isdisjoint({"nargs", "action", "type"}):
        keywords["nargs"] = "+"
    if field.default is False:
        keywords["action"] = "store_true"
    elif choices:
        keywords["choices"] = choices
    else:
        keywords["type"] = _explained(keywords.get("type", str if is_read_later else value_type))
        if value_type is int:
            keywords.setdefault("metavar", "N")
    if field.default is MISSING:
        return keywords
    if choices and field.default is None:
        keywords.update(nargs="?", const=choices[0])
        keywords["help"] += f" (without a value: {choices[0]})"
    default = [] if field.default == () else field.default
    if default and "(default" not in keywords["help"]:
        shown = ",".join(map(str, default)) if isinstance(default, tuple) else default
        keywords["help"] += f" (default: {shown})"
    keywords["default"] = argparse.SUPPRESS if is_read_later else default
    return keywords


def _is_of_pydantic(kind: type) -> bool:
    """Return True if pydantic reads the values of a dataclass."""
    return hasattr(kind, "__pydantic_fields__")


def _literal_values(hint: Any) -> tuple[str, ...]:
    """Return the values of ``Literal[…]`` or ``Literal[…] | None``; empty for any other type."""
    for part in (hint, *typing.get_args(hint)):
        if typing.get_origin(part) is typing.Literal:
            return typing.get_args(part)
    return ()


def plugin_option(group: str | None = None) -> Any:
    """Return the field of the option ``--user-dir``, plugins that are imported first."""
    return option(
        "plugins to import, for example one that adds a position method",
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
    """Create a dataclass from parsed arguments.

    Raises:
        UserInputError: pydantic rejects a value.
    """
    parsed = vars(args)
    values = {}
    for field in fields(kind):
        if field.name in parsed:
            values[field.name] = parsed[field.name]
    if not _is_of_pydantic(kind):
        return kind(**values)
    from pydantic import ValidationError  # only these commands need it

    try:
        return kind(**values)
    except ValidationError as error:
        raise UserInputError(describe_invalid(error, option_flags(kind))) from error


def _explained(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a type whose ValueError argparse prints. Otherwise, it prints the function's name."""
    if isinstance(parse, type):
        return parse

    @functools.wraps(parse)
    def read(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(unmet(error, text)) from error

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
