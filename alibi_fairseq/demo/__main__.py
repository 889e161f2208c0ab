"""``python -m alibi_fairseq.demo``: what ``scripts/demo.sh`` runs once the environment is there."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ..compare import Comparison
from ..compare.description import from_mapping
from ..compare.engine import run
from ..errors import BadInput
from ..files import atomic_write
from .corpus import python_documentation

TRAIN_LENGTH = 64
# 500 updates of 4,096 tokens are more than three passes over the 0.6M tokens of the embedded text.
FULL = {"updates": 500, "tokens_per_update": 4096, "eval_lengths": [64, 128, 256, 512, 1024]}
# Enough to see every step work; too little to learn much.
QUICK = {"updates": 60, "tokens_per_update": 2048, "eval_lengths": [64, 256, 1024]}


def parse(arguments: list[str]) -> argparse.Namespace:
    """Options of the demonstration."""
    parser = argparse.ArgumentParser(
        prog="scripts/demo.sh",
        description="Train small language models on short text and test them on long text. "
        "`alibi-fairseq compare` has more options.",
    )
    parser.add_argument("--text", type=Path, help="a text file or a folder of text files to use")
    parser.add_argument("--quick", action="store_true", help="a short run that shows every step")
    parser.add_argument(
        "--methods",
        default="alibi,sinusoidal",
        help="position methods, separated by commas, or 'all' (default: %(default)s)",
    )
    parser.add_argument(
        "--out", type=Path, help="for everything that is made (runs/demo, or runs/demo-quick)"
    )
    parser.add_argument("--results", type=Path, help="for table and figure (default: --out)")
    options = parser.parse_args(arguments)
    options.out = options.out or Path("runs/demo-quick" if options.quick else "runs/demo")
    return options


def comparison_of(options: argparse.Namespace) -> Comparison:
    """The demonstration as a comparison.

    Raises:
        BadInput: the text does not exist, or a position method does not.
    """
    if options.text is not None and not options.text.exists():
        raise BadInput(
            f"{options.text} does not exist; --text takes a text file or a folder of them."
        )
    text = options.text or options.out / "python-documentation.txt"
    methods = [name.strip() for name in options.methods.split(",") if name.strip()]
    corpus = {"name": text.resolve().name.split(".")[0], "text": str(text)}
    corpus["vocabulary"] = 1000 if options.quick else 2000
    return from_mapping(
        {
            "corpora": [corpus],
            "methods": methods,
            "train_lengths": TRAIN_LENGTH,
            "arch": "alibi_lm_tiny",
            "lr": 0.002,
            "title": f"Small models trained on {TRAIN_LENGTH} tokens",
            **(QUICK if options.quick else FULL),
        }
    )


def main(arguments: list[str]) -> int:
    """Prepare, train, evaluate, report. Returns the exit code."""
    options = parse(arguments)
    comparison = comparison_of(options)
    if options.text is None:
        with atomic_write(options.out / "python-documentation.txt") as file:
            file.write(python_documentation())
    command = ["./scripts/demo.sh", *arguments]
    code = run(comparison, options.out, results=options.results, command=command)
    if code == 0:
        print(explain(comparison, options.quick))
    return code


def explain(comparison: Comparison, quick: bool) -> str:
    """The outcome in words a newcomer understands."""
    shortest, longest = comparison.eval_lengths[0], comparison.eval_lengths[-1]
    if quick:
        return """
This was the quick form: it shows that every step works, and trains far too little to tell methods
apart. Leave --quick out for that."""
    return f"""
What this shows. Each model read texts of {TRAIN_LENGTH} tokens while it was trained. Then it was
tested on texts of {shortest} to {longest} tokens. The numbers are perplexities: how many tokens
the model hesitates between, so lower is better. A model whose positions extrapolate keeps its
perplexity, or improves it, when texts get longer; one whose positions do not gets much worse."""


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except BadInput as error:
        print(f"demo.sh: error: {error}", file=sys.stderr)
        sys.exit(2)
