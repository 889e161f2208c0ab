"""``python -m alibi_fairseq.demo``: what ``scripts/demo.sh`` runs once the environment is there."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from ..errors import BadInput
from ..files import atomic_write
from ..positions import METHODS
from ..reporting.perplexity_by_length import draw_lengths, length_csv, length_table
from ..results.points import evaluation_points
from ..results.provenance import collect_provenance
from ..results.schema import load_document, new_document, save_document
from ..workflow import exit_code
from .pipeline import SUBSET, Demo
from .settings import FULL, QUICK, SEED, TRAIN_LENGTH

#: The paper's methods, in the order of its tables.
PAPER_METHODS = ["sinusoidal", "learned", "rotary", "t5", "alibi", "transformer_xl", "none"]

#: Where the results of the two runs that are committed go: the figure of the README, all methods.
COMMITTED_RESULTS = {
    "alibi,sinusoidal": Path("results/demo"),
    "all": Path("results/demo-all"),
}


def parse(arguments: list[str]) -> argparse.Namespace:
    """Options of the demonstration."""
    parser = argparse.ArgumentParser(
        prog="scripts/demo.sh",
        description="Train small language models on short text and test them on long text.",
    )
    parser.add_argument("--text", type=Path, help="a text file or a folder of text files to use")
    parser.add_argument("--quick", action="store_true", help="a short run that shows every step")
    parser.add_argument(
        "--methods",
        default="alibi,sinusoidal",
        help="position methods, separated by commas, or 'all' (default: %(default)s)",
    )
    parser.add_argument("--work-dir", type=Path, help="for all that is generated (runs/demo)")
    parser.add_argument("--results", type=Path, help="folder for table and plot")
    options = parser.parse_args(arguments)
    default = Path("runs/demo-quick" if options.quick else "runs/demo")
    options.work_dir = options.work_dir or default
    if options.results is None:
        # Only the embedded text at full size is what the committed results show.
        own = options.quick or options.text is not None
        options.results = None if own else COMMITTED_RESULTS.get(options.methods)
        options.results = options.results or options.work_dir / "results"
    return options


def chosen_methods(names: str) -> list[str]:
    """Position methods by name; stops with a sentence at one that does not exist."""
    if names == "all":
        return PAPER_METHODS
    methods = list(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
    unknown = [name for name in methods if name not in METHODS]
    if unknown or not methods:
        raise BadInput(
            f"--methods: '{names}' names no position method '{', '.join(unknown)}'; choose from "
            f"{', '.join(METHODS)}, separated by commas, or 'all'."
        )
    return methods


def main(arguments: list[str]) -> None:
    """Prepare, train, evaluate, report."""
    options = parse(arguments)
    methods = chosen_methods(options.methods)
    settings = QUICK if options.quick else FULL
    demo = Demo(options.work_dir.resolve(), options.text, settings)
    print("Preparing the text …", flush=True)
    text = demo.prepare()
    seconds = sum(demo.train(method, text) for method in methods)
    cells = demo.evaluate(methods, text)
    seconds += sum(cell["seconds"] for cell in cells)
    document = new_document(
        "evaluation",
        "python-documentation" if options.text is None else options.text.name,
        collect_provenance(
            seconds=seconds,
            seed=SEED,
            data=demo.data,
            subsets=["train", SUBSET],
            command=["./scripts/demo.sh", *arguments],
        ),
        cells,
    )
    table = report(document, options.results)
    print(explain(table, settings.lengths, options.results))
    if options.quick:
        print(
            "This was the quick form: it shows that every step works, and trains far too little to"
        )
        print("tell methods apart. Leave --quick out for that.")


def report(document: dict, results: Path) -> str:
    """Write document, table and plot, unless the same cells are there; returns the table."""
    path = results / "demo.json"
    if path.is_file() and (kept := load_document(path))["cells"] == document["cells"]:
        document = kept
    points = evaluation_points(document)
    table = length_table(points)
    save_document(document, path)
    for name, content in (("demo.md", table), ("demo.csv", length_csv(document))):
        with atomic_write(results / name) as file:
            file.write(content)
    draw_lengths(points, document["corpus"], results / "demo.png")
    return table


def explain(table: str, lengths: tuple[int, ...], results: Path) -> str:
    """The outcome in words a newcomer understands."""
    return f"""
{table}
What this shows. Each model read texts of {TRAIN_LENGTH} tokens while it was trained. Then it was
tested on texts of {lengths[0]} to {lengths[-1]} tokens. The numbers are perplexities: how many tokens
the model hesitates between, so lower is better. A model whose positions extrapolate keeps its
perplexity, or improves it, when texts get longer; one whose positions do not gets much worse.

Plot:  {results / "demo.png"}
Table: {results / "demo.md"} (also .csv, and .json with how it was made)
"""


if __name__ == "__main__":
    # The models are small: more threads than cores of a small machine only wait for each other.
    os.environ.setdefault("OMP_NUM_THREADS", str(min(8, os.cpu_count() or 1)))
    try:
        sys.exit(exit_code(lambda: main(sys.argv[1:])))
    except BadInput as error:
        print(f"demo.sh: error: {error}", file=sys.stderr)
        sys.exit(2)
