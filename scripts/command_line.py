"""Write docs/command-line.md from the options that the commands declare.

python scripts/command_line.py
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import sys
from collections.abc import Iterable
from pathlib import Path

from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY

import alibi_fairseq  # noqa: F401 (registers the models)
from alibi_fairseq import cli
from alibi_fairseq.attention import SCORE_SCALINGS, SEPARATORS
from alibi_fairseq.blocks import FEED_FORWARDS, NORMALIZATIONS
from alibi_fairseq.cli import fairseq_command, train_recipe
from alibi_fairseq.files import atomic_write
from alibi_fairseq.positions.options import DISTANCES

PAGE = Path(__file__).parents[1] / "docs" / "command-line.md"
START = """# Command line

<!-- written by `python scripts/command_line.py` from the options that the commands declare -->

All options of `alibi-fairseq COMMAND`, as `alibi-fairseq COMMAND --help` prints them. For fairseq's
commands, [only those that this package adds](#train-and-the-other-commands-of-fairseq).
"""
#: Groups that argparse makes for options without a group.
UNNAMED_GROUPS = ("positional arguments", "options")
#: Names of values, by their type.
VALUES = {int: "N", float: "X"}
#: Defaults of the options of our models, except those that turn something on or off.
MODEL_DEFAULTS = {
    field.name: field.default
    for field in dataclasses.fields(MODEL_DATACLASS_REGISTRY["alibi_lm"])
    if isinstance(field.default, int | float | str) and not isinstance(field.default, bool)
}
#: Values of the options of our models that allow only these, and which fairseq declares as text.
MODEL_CHOICES = {
    "alibi_distance": DISTANCES,
    "score_scaling": SCORE_SCALINGS,
    "block_diagonal": SEPARATORS,
    "normalization": NORMALIZATIONS,
    "ffn": FEED_FORWARDS,
}


def page() -> str:
    """Write the page."""
    sections = [START]
    parser = cli.make_parser(list(cli.COMMANDS))
    for name, command in subcommands(parser).items():
        sections.append(f"## {name}\n\n{sentence(command.description)}\n")
        corpora = subcommands(command)
        if not corpora:
            sections.append(option_tables(command))
        for corpus, corpus_parser in corpora.items():
            sections.append(f"### {name} {corpus}\n\n{sentence(corpus_parser.description)}\n")
            sections.append(option_tables(corpus_parser))
    sections.append(
        "## train, and the other commands of fairseq\n\n"
        "`train`, `hydra-train`, `eval-lm`, `validate`, `generate`, `interactive`, and "
        "`preprocess` are fairseq's commands with this package loaded. They take fairseq's "
        "options, which `--help` lists. This package adds the options below, the values "
        "`--criterion chunked_adaptive_loss`, `--criterion chunked_cross_entropy`, and "
        "`--optimizer fused_adam` ([guide](losses.md)), and `--task segment_language_modeling` "
        "([guide](transformer-xl.md)).\n"
    )
    sections.append("### train\n")
    sections.append(option_tables(fairseq_command.own_training_options()))
    sections.append("### train --recipe\n")
    sections.append(option_tables(train_recipe.make_parser()))
    sections.append(
        "### Options of the models\n\nOf `train` with `--arch alibi_lm…`, with the defaults of "
        "`alibi_lm`; `--model-overrides` of `eval` changes them at evaluation.\n"
    )
    sections.append(option_table(own_model_options()))
    return "\n".join(sections)


def sentence(text: str) -> str:
    """Return the help of a command as a sentence."""
    return text[0].upper() + text[1:].rstrip(".") + "."


def subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the commands of a parser that have options of their own here."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return {name: choice for name, choice in action.choices.items() if choice.add_help}
    return {}


def option_tables(parser: argparse.ArgumentParser) -> str:
    """Write a table for each group of options."""
    tables = []
    unnamed = []
    for group in parser._action_groups:
        if group.title in UNNAMED_GROUPS:
            unnamed += group._group_actions
        elif group._group_actions:
            title = group.title[0].upper() + group.title[1:]
            tables.append(f"**{title}**\n\n{option_table(group._group_actions)}")
    if not all(is_hidden(action) for action in unnamed):
        tables.insert(0, option_table(unnamed))
    return "\n".join(tables)


def option_table(actions: Iterable[argparse.Action]) -> str:
    """Write options as a Markdown table."""
    lines = ["| option | description |", "|---|---|"]
    for action in actions:
        if not is_hidden(action):
            lines.append(f"| {code(invocation(action))} | {description(action)} |")
    return "\n".join(lines) + "\n"


def is_hidden(action: argparse.Action) -> bool:
    """Return True for options that the page leaves out."""
    return isinstance(action, argparse._HelpAction) or action.help == argparse.SUPPRESS


def invocation(action: argparse.Action) -> str:
    """Return an option with its value, such as ``--lr X,…``."""
    value = action.metavar
    choices = action.choices or MODEL_CHOICES.get(action.dest)
    if value is None and choices:
        value = "|".join(str(choice) for choice in choices)
    if value is None:
        value = VALUES.get(action.type, "TEXT")
    if not action.option_strings:
        shown = value
    elif isinstance(action, argparse.BooleanOptionalAction):
        shown = ", ".join(action.option_strings)
    elif action.nargs == 0:
        shown = action.option_strings[-1]
    else:
        shown = f"{action.option_strings[-1]} {value}"
    return shown


def code(text: str) -> str:
    """Write text as code in a cell. GitHub and MkDocs read an escaped | in a cell differently."""
    if "|" in text:
        return f"<code>{text.replace('|', '&#124;')}</code>"
    return f"`{text}`"


def description(action: argparse.Action) -> str:
    """Return the help of an option, with its default, as Markdown."""
    text = argparse.HelpFormatter("")._expand_help(action)
    if "(default" not in text and action.dest in MODEL_DEFAULTS:
        text += f" (default: {MODEL_DEFAULTS[action.dest]})"
    if action.option_strings and action.required:
        text += " (required)"
    for character in "|*<":
        text = text.replace(character, f"\\{character}")
    text = re.sub(r"docs/([\w-]+)\.md", r"[guide](\1.md)", text)
    return re.sub(r"(configs)/README\.md", r"[guide](../\1/README.md)", text)


def own_model_options() -> list[argparse.Action]:
    """Return the options that our models have, and fairseq's language models don't."""
    known = set()
    for action in model_options("transformer_lm"):
        known.update(action.option_strings)
    return [
        action for action in model_options("alibi_lm") if known.isdisjoint(action.option_strings)
    ]


def model_options(name: str) -> list[argparse.Action]:
    """Return the options of a model of fairseq."""
    parser = argparse.ArgumentParser()
    ARCH_MODEL_REGISTRY[name].add_args(parser)
    return parser._actions


def main() -> int:
    """Write the page."""
    with atomic_write(PAGE) as stream:
        stream.write(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
