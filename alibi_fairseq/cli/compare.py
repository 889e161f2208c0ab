"""``alibi-fairseq compare``: position methods on your own text, from the text to a figure."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from ..errors import BadInput
from .experiment_options import add_experiment_arguments, check_numbers, run_experiment

# Options that describe the comparison: absent ones keep the defaults of the description.
_LISTS = {
    "methods": (
        "alibi,sinusoidal",
        "position methods; 'all' are the seven no later than ALiBi, 'later' the others",
    ),
    "train_lengths": ("128", "tokens per sample in training"),
    "eval_lengths": ("128,256,512,1024", "window lengths in evaluation"),
    "seeds": ("1", "of initialization and data order"),
    "strides": ("full", "tokens that each window scores"),
}
_VALUES = {
    "arch": (str, "alibi_lm_tiny", "a model of `alibi-fairseq models`"),
    "updates": (int, "1000", "optimizer steps of each run"),
    "tokens_per_update": (int, "4096", "of each run, whatever its training length"),
    "lr": (float, "0.001", "peak learning rate of Adam"),
    "train_flags": (str, "none", "further options of fairseq-train, in one string"),
    "subset": (str, "valid", "the split to evaluate on"),
    "title": (str, "Perplexity by evaluation length", "of table and figure"),
}
_TEXT = {
    "tokenizer": (str, "sentencepiece", "of text: sentencepiece or words"),
    "vocabulary": (int, "by size", "of text: dictionary entries"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "sources",
        nargs="+",
        metavar="TEXT|DATA_BIN|YAML",
        help="text files or folders; or a folder of fairseq's binary data; or a YAML file that "
        "describes the comparison (docs/compare.md)",
    )
    for name, (default, text) in _LISTS.items():
        parser.add_argument(
            _flag(name),
            dest=name,
            metavar="A,B,…",
            type=lambda text: [part.strip() for part in text.split(",") if part.strip()],
            help=f"{text} (default: {default})",
        )
    for name, (kind, default, text) in {**_VALUES, **_TEXT}.items():
        parser.add_argument(
            _flag(name),
            dest=name,
            type=kind,
            metavar="N" if kind is not str else "X",
            help=f"{text} (default: {default})",
        )
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FOLDER", help="for everything that is made"
    )
    add_experiment_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Returns 75 if it was asked to stop; the same command resumes."""
    from ..experiments.compare import Compare, check_model

    check_numbers(args)
    comparison = comparison_of(args)
    check_model(comparison)
    command = None
    if args.job:
        command = ["alibi-fairseq", *args.arguments[: args.arguments.index("--job")]]
    experiment = Compare(comparison, args.out, args.parallel, command=command)
    return run_experiment(args, experiment, plans_itself=True)


def comparison_of(args: argparse.Namespace):
    """The comparison that the options or the YAML file describe."""
    from ..experiments.comparison import from_mapping, load

    given = {name: getattr(args, name) for name in (*_LISTS, *_VALUES, *_TEXT, "hours")}
    given = {name: value for name, value in given.items() if value is not None}
    if any(source.endswith((".yaml", ".yml")) for source in args.sources):
        if len(args.sources) > 1 or given:
            more = [_flag(name) for name in given] or args.sources[1:]
            raise BadInput(
                f"{args.sources[0]} describes the whole comparison; change it there instead of "
                f"giving {', '.join(more)}."
            )
        return replace(load(args.sources[0]), user_dir=args.user_dir)
    given = {name: value for name, value in given.items() if name not in _TEXT}
    return from_mapping({**given, **_corpus(args), "user_dir": args.user_dir})


def _corpus(args: argparse.Namespace) -> dict:
    text = {name: getattr(args, name) for name in _TEXT if getattr(args, name) is not None}
    first = Path(args.sources[0])
    if (first / "dict.txt").is_file():
        if len(args.sources) > 1 or text:
            raise BadInput(f"{first} is binary data already; give it alone and without {text}.")
        name = first.parent.name if first.name == "data-bin" else first.name
        return {"corpora": [{"name": name or "data", "data": str(first)}]}
    for source in args.sources:
        if not Path(source).exists():
            raise BadInput(f"{source}: there is no such file or folder.")
    name = first.resolve().name.split(".")[0]
    return {"corpora": [{"name": name, "text": args.sources, **text}]}


def _flag(name: str) -> str:
    return "--vocab-size" if name == "vocabulary" else "--" + name.replace("_", "-")
