"""``alibi-fairseq compare``: position methods on your own text, from the text to a figure."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from ..errors import BadInput
from ..experiments.comparison import Comparison, Corpus, from_mapping, load
from .experiment_options import add_experiment_arguments, names, run_experiment

FIELDS = Comparison.__pydantic_fields__ | Corpus.__pydantic_fields__  # type: ignore[attr-defined]
#: Fields that describe the comparison; absent options keep their defaults.
OPTIONS = (
    *("methods", "train_lengths", "eval_lengths", "seeds", "strides", "arch", "updates"),
    *("tokens_per_update", "lr", "tune_share", "train_flags", "subset", "title"),
)
#: Fields of its corpus.
TEXT = ("tokenizer", "vocabulary")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "sources",
        nargs="+",
        metavar="TEXT|DATA_BIN|YAML",
        help="text files or folders; or a folder of fairseq's binary data; or a YAML file that "
        "describes the comparison (docs/experiments.md)",
    )
    for name in (*OPTIONS, *TEXT):
        default = FIELDS[name].default
        several = isinstance(default, tuple) and default != ()
        shown = ",".join(map(str, default)) if several else default or "none"
        parser.add_argument(
            _flag(name),
            dest=name,
            type=names if several else str,
            metavar="A,B,…" if several else "N" if isinstance(default, float | int) else "X",
            help=f"{FIELDS[name].description} (default: {shown})",
        )
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FOLDER", help="for everything that is made"
    )
    add_experiment_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Returns 75 if it was asked to stop; the same command resumes."""
    from ..experiments.compare import Compare, check_model

    comparison = comparison_of(args)
    check_model(comparison)
    command = None
    if args.job:
        command = ["alibi-fairseq", *args.arguments[: args.arguments.index("--job")]]
    experiment = Compare(comparison, args.out, args.parallel, command=command)
    return run_experiment(args, experiment, plans_itself=True)


def comparison_of(args: argparse.Namespace) -> Comparison:
    """The comparison that the options or the YAML file describe."""
    options = {name: value for name, value in vars(args).items() if value is not None}
    given = {name: options[name] for name in (*OPTIONS, "hours") if name in options}
    text = {name: options[name] for name in TEXT if name in options}
    first = Path(args.sources[0])
    if any(source.endswith((".yaml", ".yml")) for source in args.sources):
        if more := [*map(_flag, (*given, *text)), *args.sources[1:]]:
            raise BadInput(
                f"{first} describes the whole comparison; change it there instead of giving "
                f"{', '.join(more)}."
            )
        return replace(load(first), user_dir=args.user_dir)
    if (first / "dict.txt").is_file():
        if len(args.sources) > 1 or text:
            raise BadInput(f"{first} is binary data already; give it alone and without {text}.")
        name = first.parent.name if first.name == "data-bin" else first.name
        corpus = {"name": name or "data", "data": str(first)}
    else:
        for source in args.sources:
            if not Path(source).exists():
                raise BadInput(f"{source}: there is no such file or folder.")
        corpus = {"name": first.resolve().name.split(".")[0], "text": args.sources, **text}
    return from_mapping({**given, "corpora": [corpus], "user_dir": args.user_dir})


def _flag(name: str) -> str:
    return "--vocab-size" if name == "vocabulary" else "--" + name.replace("_", "-")
