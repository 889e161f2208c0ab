"""Names and headings of the options of all commands."""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import ROOT

from alibi_fairseq import cli
from alibi_fairseq.cli import COMMANDS
from alibi_fairseq.cli.evaluate import GROUPS
from alibi_fairseq.options import positive_integer


def subparsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def options_of(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        if not isinstance(action, argparse._SubParsersAction):
            yield action
    for command in subparsers(parser).values():
        yield from options_of(command)


@pytest.fixture(scope="module")
def options() -> list[argparse.Action]:
    """Options of the commands of this package."""
    actions = []
    for name in COMMANDS:
        actions += options_of(subparsers(cli.make_parser([name]))[name])
    return actions


def test_folders_have_one_placeholder(options):
    metavars = {action.metavar for action in options}
    assert "FOLDER" in metavars
    assert not metavars & {"DIR", "PATH", "DIRECTORY"}


def test_flag_has_one_meaning(options):
    placeholders = defaultdict(set)
    for action in options:
        for flag in action.option_strings:
            values = ",".join(sorted(action.choices or ()))
            placeholders[flag].add(action.metavar or values)
    assert placeholders["--tokenizer"] == {"sentencepiece,words"}
    ambiguous = {flag: names for flag, names in placeholders.items() if len(names) > 1}
    assert ambiguous == {
        "--out": {"FILE", "FOLDER"},  # `eval` writes one file
        "--path": {"CHECKPOINT", "CHECKPOINT|FOLDER"},  # `eval` also takes Hugging Face folders
        "--subset": {"SPLIT", "SPLIT,…"},  # `compare` takes one split
    }


def test_default_output_is_not_tracked(options):
    ignored = (ROOT / ".gitignore").read_text().splitlines()
    folders = set()
    for action in options:
        # An entry of the record is written to be committed, and adds a folder of its own.
        if isinstance(action.default, Path) and action.dest != "record":
            folders.add(action.default.parts[0])
    assert folders == {"data", "runs"}
    assert {f"/{folder}/" for folder in folders} <= set(ignored)


def test_numbers_have_one_placeholder(options):
    numbers = {action.metavar for action in options if action.type in (int, positive_integer)}
    assert "N" in numbers
    assert numbers <= {"N", "M", "TOKENS"}


def test_option_is_not_plural_of_another(options):
    flags = {flag for action in options for flag in action.option_strings}
    assert "--strides" in flags
    assert not {f"{flag}s" for flag in flags - {"--seed"}} & flags


def test_option_help_is_noun_phrase(options):
    for action in options:
        if action.help != argparse.SUPPRESS:
            assert action.help, action.dest
            assert not action.help.endswith("."), action.help


def test_eval_groups_options():
    parser = subparsers(cli.make_parser(["eval"]))["eval"]
    groups = {group.title: group for group in parser._action_groups}
    assert list(groups)[2:] == list(GROUPS)  # after the groups of argparse
    names = {}
    for title, group in groups.items():
        names[title] = {action.dest for action in group._group_actions}
    assert not names["positional arguments"]
    assert names["options"] == {"help"}
    assert names["only for fairseq checkpoints"] == {"splits", "user_dir"}
    assert names["only for Hugging Face folders"] == {"bos_per_window", "trust_remote_code"}


def test_compare_groups_options():
    parser = subparsers(cli.make_parser(["compare"]))["compare"]
    headings = ["text", "models", "training", "evaluation", "output", "running"]
    groups = {group.title: group for group in parser._action_groups}
    assert list(groups)[2:] == headings  # after the groups of argparse
    general = {action.dest for action in groups["options"]._group_actions}
    assert general <= {"help", "job"}
    assert "lr" in {action.dest for action in groups["training"]._group_actions}
    assert "slurm" in {action.dest for action in groups["running"]._group_actions}


def test_help_has_at_most_one_default(options):
    for action in options:
        description = action.help or ""
        assert description.count("(default: ") <= 1, action.option_strings
        assert "(default: none)" not in description, action.option_strings
