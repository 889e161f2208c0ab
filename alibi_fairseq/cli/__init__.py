"""The command ``alibi-fairseq <verb> …``.

To add a verb: a module of this package with ``add_arguments(parser)`` and ``run(args)`` (returning
an exit code or None), and a line in ``VERBS``. Modules are imported when their verb is used.
"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module

from .. import __version__, errors
from ..errors import BadInput, did_you_mean

PROGRAM = "alibi-fairseq"

#: Our own verbs: module and one line of help.
VERBS = {
    "compare": ("compare", "compare position methods on your own text, from text to figure"),
    "demo": ("demo", "train short and test long, in minutes, on text that Python carries"),
    "models": ("models", "list the registered models with their sizes, and the position methods"),
    "prepare": ("prepare", "turn a corpus of the paper, or any text, into fairseq's binary data"),
    "eval": ("eval", "perplexity at any window length and stride"),
    "position-loss": ("position_loss", "loss by position within the window"),
    "merge-shards": ("merge_shards", "join the results of all shards of a sweep"),
    "report": ("report", "put results beside the paper's: tables and figures"),
    "check-env": ("check_env", "report what is installed, what is wrong with it and how to fix it"),
    "launch": ("launch", "train a recipe of configs/ on any number of GPUs or nodes"),
    "reproduce": ("reproduce", "a table or figure of the paper, from the text to the report"),
    "study": (
        "study",
        "try the paper's claims on texts at hand, cell by cell, over several sittings",
    ),
    "import-checkpoint": ("import_checkpoint", "make a released ALiBi checkpoint one of ours"),
    "import-hf": ("import_hf", "make a Hugging Face model a checkpoint to train on"),
    "export": ("export", "make a checkpoint a folder for Hugging Face transformers"),
}

#: Those that load models, which a plugin may define.
LOADING = ("compare", "models", "eval", "position-loss")

#: fairseq's commands with --user-dir already set: what they do.
FAIRSEQ_COMMANDS = {
    "train": "fairseq-train: train a model",
    "hydra-train": "fairseq-hydra-train: train a model described by a YAML file",
    "eval-lm": "fairseq-eval-lm: evaluate a language model",
    "validate": "fairseq-validate: compute the validation loss of a checkpoint",
    "generate": "fairseq-generate: continue texts of a prepared data folder",
    "interactive": "fairseq-interactive: continue texts typed in",
    "preprocess": "fairseq-preprocess: make a data folder from text",
}


def main(arguments: list[str] | None = None) -> int:
    """Run a verb and return the exit code (:func:`alibi_fairseq.errors.report`)."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        try:
            return _run(arguments)
        finally:
            sys.stdout.flush()  # finds an output that is closed or full
    except (Exception, KeyboardInterrupt) as error:
        return errors.report(error)  # `report` here is the verb's module once that is imported


def _run(arguments: list[str]) -> int:
    if arguments and arguments[0] in FAIRSEQ_COMMANDS:
        from . import fairseq_command

        return fairseq_command.run(arguments[0], arguments[1:])
    return _run_verb(arguments)


def _run_verb(arguments: list[str]) -> int:
    verb = arguments[0] if arguments else "--help"
    if not verb.startswith("-") and verb not in VERBS:
        raise BadInput(
            f"There is no command '{verb}'.{did_you_mean(verb, [*VERBS, *FAIRSEQ_COMMANDS])} "
            f"`{PROGRAM} --help` lists them."
        )
    args, rest = make_parser(arguments).parse_known_args(arguments)
    if rest:
        hint = ""
        if not rest[0].startswith("-"):
            hint = " Separate several values of an option by commas: --methods alibi,sinusoidal."
        raise BadInput(f"Not understood: {' '.join(rest)}.{hint} See `{PROGRAM} {verb} --help`.")
    args.arguments = arguments
    if getattr(args, "user_dir", None):
        from . import fairseq_command

        fairseq_command.import_plugin(args.user_dir)
    return import_module(f".{VERBS[args.verb][0]}", __name__).run(args) or 0


def make_parser(arguments: list[str]) -> argparse.ArgumentParser:
    """The parser, with the options of the verb that the arguments begin with."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Length extrapolation of language models with fairseq.",
        epilog="`alibi-fairseq VERB --help` lists the options of a verb.",
    )
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for verb, (module, text) in VERBS.items():
        verb_parser = verbs.add_parser(verb, help=text, description=text)
        if verb in arguments[:1]:
            import_module(f".{module}", __name__).add_arguments(verb_parser)
            if verb in LOADING:
                verb_parser.add_argument(
                    "--user-dir",
                    metavar="FOLDER",
                    help="a plugin of your own that imports alibi_fairseq, for example with a "
                    "position method",
                )
    for verb, text in FAIRSEQ_COMMANDS.items():
        verbs.add_parser(verb, help=text, add_help=False)
    return parser
