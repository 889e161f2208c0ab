"""The command ``alibi-fairseq <verb> …``.

To add a verb: a dataclass of its options in a module of this package (:class:`.options.Verb`), or a
module with ``add_arguments(parser)`` and ``run(args)``, and a line in ``VERBS``. Modules are imported
when their verb is used.
"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module

from .. import __version__, errors
from ..errors import PROGRAM, UserInputError, did_you_mean, usage_error

#: Our own verbs: module, or module and class, and one line of help.
VERBS = {
    "compare": (
        "compare:CompareCommand",
        "compare position methods on your own text or on probes, from text to figure",
    ),
    "models": ("paper:Models", "list the models with their sizes, and the position methods"),
    "prepare": (
        "prepare",
        "convert your own text, or a corpus of the paper, to fairseq's binary data",
    ),
    "eval": ("evaluate:Eval", "measure perplexity at any window length and stride"),
    "report": ("report:ReportCommand", "make tables and figures of results, beside the paper's"),
    "launch": ("paper:Launch", "train a recipe of configs/ on any number of GPUs or nodes"),
    "reproduce": (
        "paper:Reproduce",
        "make a table or figure of the paper, from text to report",
    ),
    "import-checkpoint": ("convert:ImportCheckpoint", "convert a released ALiBi checkpoint"),
    "import-hf": ("convert:ImportHf", "convert a Hugging Face model to a checkpoint"),
    "export": ("convert:Export", "export a checkpoint to Hugging Face format"),
}

#: Verbs that load models, which a plugin may define.
LOADING = ("compare", "models", "eval")

#: fairseq's commands with --user-dir set, and one line of help.
FAIRSEQ_COMMANDS = {
    "train": "fairseq-train: train a model",
    "hydra-train": "fairseq-hydra-train: train a model described by a YAML file",
    "eval-lm": "fairseq-eval-lm: evaluate a language model",
    "validate": "fairseq-validate: compute the validation loss of a checkpoint",
    "generate": "fairseq-generate: continue texts of a data folder",
    "interactive": "fairseq-interactive: continue texts from standard input",
    "preprocess": "fairseq-preprocess: make a data folder from text",
}


def main(arguments: list[str] | None = None) -> int:
    """Run a verb and return the exit code (:func:`alibi_fairseq.errors.print_error`)."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        try:
            return _run(arguments)
        finally:
            sys.stdout.flush()  # finds an output that is closed or full
    except (Exception, KeyboardInterrupt) as error:
        return errors.print_error(error)


def _run(arguments: list[str]) -> int:
    for argument in arguments:
        if argument != argument.encode(errors="replace").decode():
            raise UserInputError(f"{argument!a} is not UTF-8; rename the file or folder.")
    if arguments and arguments[0] in FAIRSEQ_COMMANDS:
        from . import fairseq_command

        return fairseq_command.run(arguments[0], arguments[1:])
    verb, known = arguments[0] if arguments else "--help", [*VERBS, *FAIRSEQ_COMMANDS]
    if verb not in known and not verb.startswith("-"):
        raise UserInputError(
            f"There is no command '{verb}'.{did_you_mean(verb, known)} `{PROGRAM} --help` lists them."
        )
    args, rest = make_parser(arguments).parse_known_args(arguments)
    if rest:
        hint = ""
        if not rest[0].startswith("-"):
            hint = " Separate several values of an option by commas: --methods alibi,sinusoidal."
        raise UserInputError(
            f"Not understood: {' '.join(rest)}.{hint} See `{PROGRAM} {verb} --help`."
        )
    args.arguments = arguments
    if getattr(args, "user_dir", None):
        from fairseq.utils import import_user_module

        import_user_module(args)
    return _verb(args.verb).run(args) or 0


def _verb(name: str):
    """The module or class of a verb."""
    module, _, kind = VERBS[name][0].partition(":")
    found = import_module(f".{module}", __name__)
    return getattr(found, kind) if kind else found


class Parser(argparse.ArgumentParser):
    """A parser whose errors are sentences, like any other about bad input."""

    def error(self, message):
        raise usage_error(message, self.prog)


def make_parser(arguments: list[str]) -> argparse.ArgumentParser:
    """The parser, with the options of the verb that the arguments begin with."""
    parser = Parser(
        prog=PROGRAM,
        description="Length extrapolation of language models with fairseq.",
        epilog="`alibi-fairseq VERB --help` lists the options of a verb.",
    )
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for verb, (_, text) in VERBS.items():
        verb_parser = verbs.add_parser(verb, help=text, description=text)
        if verb in arguments[:1]:
            _verb(verb).add_arguments(verb_parser)
            if verb in LOADING:
                verb_parser.add_argument(
                    "--user-dir",
                    metavar="FOLDER",
                    help="plugin that imports alibi_fairseq, for example one with a position method",
                )
    for verb, text in FAIRSEQ_COMMANDS.items():
        verbs.add_parser(verb, help=text, add_help=False)
    return parser
