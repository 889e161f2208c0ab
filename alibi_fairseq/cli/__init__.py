"""Command line ``alibi-fairseq COMMAND …``.

To add a command, write a dataclass of its options in a module of this package
(:class:`.options.CliCommand`), or a module with ``add_arguments(parser)`` and ``run(args)``, and
add an entry to ``COMMANDS``. A module is imported when its command is used.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection
from importlib import import_module

from .. import __version__, errors
from ..errors import PROGRAM, UserInputError, did_you_mean
from .options import Parser
from .plugin import import_plugin

#: Commands of this package: module, or module and class, and one line of help.
COMMANDS = {
    "compare": (
        "compare:CompareCommand",
        "compare position methods on your own text or on probes, from text to figure",
    ),
    "models": ("models:Models", "list the models with their sizes and the position methods"),
    "check": ("check:Check", "check that a position method is computed correctly"),
    "prepare": (
        "prepare",
        "convert your own text, or a corpus of the paper, to fairseq's binary data",
    ),
    "eval": ("evaluate:Eval", "measure perplexity at any window length and stride"),
    "recall": (
        "recall:Recall",
        "measure the loss of tokens that complete a pair seen earlier, by distance",
    ),
    "report": ("report:ReportCommand", "write tables and figures of results next to the paper's"),
    "record": ("record", "keep the results of many authors in a record, and check and show them"),
    "reproduce": (
        "reproduce:Reproduce",
        "reproduce a table or figure of the paper, from text to report",
    ),
    "import-checkpoint": ("convert:ImportCheckpoint", "convert a released ALiBi checkpoint"),
    "import-hf": ("convert:ImportHf", "convert a Hugging Face model to a checkpoint"),
    "export": ("convert:Export", "export a checkpoint to Hugging Face format"),
    "completion": ("completion:Completion", "print a script that completes commands in a shell"),
}

#: Commands of fairseq, run with --user-dir set, and one line of help.
FAIRSEQ_COMMANDS = {
    "train": "fairseq-train: train a model, or with --recipe a run of the paper",
    "hydra-train": "fairseq-hydra-train: train a model described by a YAML file",
    "eval-lm": "fairseq-eval-lm: evaluate a language model",
    "validate": "fairseq-validate: compute the validation loss of a checkpoint",
    "generate": "fairseq-generate: continue texts of a data folder",
    "interactive": "fairseq-interactive: continue texts from standard input",
    "preprocess": "fairseq-preprocess: make a data folder from text",
}


def main(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit code (:func:`alibi_fairseq.errors.print_error`)."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        try:
            return _run(arguments)
        finally:
            sys.stdout.flush()  # raises an error if the output is closed or full
    except (Exception, KeyboardInterrupt) as error:
        return errors.print_error(error)


def _run(arguments: list[str]) -> int:
    if arguments and arguments[0] in FAIRSEQ_COMMANDS:
        from . import fairseq_command

        return fairseq_command.run(arguments[0], arguments[1:])
    command = arguments[0] if arguments else "--help"
    known = [*COMMANDS, *FAIRSEQ_COMMANDS]
    if command not in known and not command.startswith("-"):
        raise UserInputError(
            f"There is no command '{command}'.{did_you_mean(command, known)} "
            f"`{PROGRAM} --help` lists the commands."
        )
    args, unrecognized = make_parser(arguments[:1]).parse_known_args(arguments)
    if unrecognized:
        hint = ""
        if not unrecognized[0].startswith("-"):
            hint = " Separate several values of an option by commas: --methods alibi,sinusoidal."
        raise UserInputError(
            f"Unrecognized arguments: {' '.join(unrecognized)}.{hint} "
            f"`{PROGRAM} {command} --help` lists the options."
        )
    args.arguments = arguments
    if getattr(args, "user_dir", None):
        import_plugin(args.user_dir)
    return _load_command(args.command).run(args) or 0


def _load_command(name: str):
    """Return the module or class of a command."""
    module_name, _, class_name = COMMANDS[name][0].partition(":")
    module = import_module(f".{module_name}", __name__)
    if class_name:
        return getattr(module, class_name)
    return module


def make_parser(commands_with_options: Collection[str]) -> argparse.ArgumentParser:
    """Return the parser of all commands, with the options of some of them.

    The module of each command with options is imported.
    """
    parser = Parser(
        prog=PROGRAM,
        description="Length extrapolation of language models with fairseq.",
        epilog="`alibi-fairseq COMMAND --help` lists the options of a command.",
    )
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (_, text) in COMMANDS.items():
        command_parser = commands.add_parser(name, help=text, description=text)
        if name in commands_with_options:
            _load_command(name).add_arguments(command_parser)
    for name, text in FAIRSEQ_COMMANDS.items():
        commands.add_parser(name, help=text, add_help=False)
    return parser
