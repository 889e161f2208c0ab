"""``alibi-fairseq compare``: position methods on your own text, from the text to a figure."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..data.probes import PROBES
from ..errors import BadInput
from ..experiments.comparison import Comparison, Corpus, from_mapping, load
from .experiment_options import add_experiment_arguments, names, run_experiment, wants_slurm

FIELDS = Comparison.__pydantic_fields__ | Corpus.__pydantic_fields__  # type: ignore[attr-defined]
#: Fields that describe the comparison; absent options keep their defaults.
OPTIONS = (
    *("methods", "train_lengths", "eval_lengths", "seeds", "strides", "score_from", "score_to"),
    *("per_document", "arch", "updates"),
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
    add_options(parser, (*OPTIONS, *TEXT))
    parser.add_argument(
        "--probes",
        type=names,
        metavar="A,B,…",
        help=f"also train models on {' or '.join(PROBES)}, and show how they do at 1 and 4 L",
    )
    parser.add_argument(
        "--speeds",
        action="store_true",
        help="at the end time training and evaluation of all models in turns, relative to sinusoidal; "
        "nothing else should run then",
    )
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FOLDER", help="for everything that is made"
    )
    add_experiment_arguments(parser)


def add_options(parser: argparse.ArgumentParser, fields: Sequence[str], **defaults: Any) -> None:
    """Add an option for each of some fields.

    Args:
        defaults: other ones than the fields', for the help.
    """
    for name in fields:
        default = defaults.get(name, FIELDS[name].default)
        several = isinstance(default, tuple) and default != ()
        shown = ",".join(map(str, default)) if several else default or "none"
        parser.add_argument(
            _flag(name),
            dest=name,
            type=names if several else str,
            metavar="A,B,…" if several else "N" if isinstance(default, float | int) else "X",
            help=f"{FIELDS[name].description} (default: {shown})",
        )


def run(args: argparse.Namespace) -> int:
    return run_comparison(args, comparison_of(args))


def run_comparison(args: argparse.Namespace, comparison: Comparison) -> int:
    """Returns 75 if it was asked to stop; the same command resumes."""
    from ..experiments.compare import Compare, check_model

    check_model(comparison)
    command = None
    if args.job:
        command = ["alibi-fairseq", *args.arguments[: args.arguments.index("--job")]]
    speeds = getattr(args, "speeds", False)
    if speeds and wants_slurm(args):
        raise BadInput("--speeds measures the machine it runs on; leave it out with --slurm.")
    experiment = Compare(comparison, args.out, args.parallel, command=command, speeds=speeds)
    return run_experiment(args, experiment, plans_itself=True)


def comparison_of(args: argparse.Namespace) -> Comparison:
    """The comparison that the options or the YAML file describe."""
    options = {name: value for name, value in vars(args).items() if value is not None}
    given = {name: options[name] for name in (*OPTIONS, "hours") if name in options}
    text = {name: options[name] for name in TEXT if name in options}
    first = Path(args.sources[0])
    if any(source.endswith((".yaml", ".yml")) for source in args.sources):
        probes = ["--probes"] if args.probes else []
        if more := [*map(_flag, (*given, *text)), *probes, *args.sources[1:]]:
            raise BadInput(
                f"{first} describes the whole comparison; change it there instead of giving "
                f"{', '.join(more)}."
            )
        return replace(load(first), user_dir=args.user_dir)
    corpus = corpus_of(args.sources, text)
    filling = str(args.out / corpus["name"] / "data-bin") if "text" in corpus else corpus["data"]
    corpora = [corpus]
    for name in args.probes or ():
        in_text = name in PROBES and PROBES[name].in_text
        corpora.append({"name": name, "probe": name, **({"data": filling} if in_text else {})})
    return from_mapping({**given, "corpora": corpora, "user_dir": args.user_dir})


def corpus_of(sources: Sequence[str], text: dict) -> dict:
    """What a description says of a corpus that is named on the command line.

    Args:
        sources: texts, or a folder of binary data.
        text: options of the preparation of a text.
    """
    first = Path(sources[0])
    if (first / "dict.txt").is_file():
        if len(sources) > 1 or text:
            raise BadInput(f"{first} is binary data already; give it alone and without {text}.")
        name = first.parent.name if first.name == "data-bin" else first.name
        return {"name": name or "data", "data": str(first)}
    for source in sources:
        if not Path(source).exists():
            raise BadInput(f"{source}: there is no such file or folder.")
    return {"name": first.resolve().name.split(".")[0], "text": list(sources), **text}


def _flag(name: str) -> str:
    return "--vocab-size" if name == "vocabulary" else "--" + name.replace("_", "-")
