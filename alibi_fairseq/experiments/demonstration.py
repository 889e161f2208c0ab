"""``scripts/demo.sh``: train short, test long, in minutes, on text that every Python carries.

``pydoc_data.topics`` and the docstrings of the standard library are about 2 MB of English technical
prose that every Python installation carries, so nothing is downloaded. The sources are parsed, not
imported: importing every module of a standard library has side effects.
"""

from __future__ import annotations

import ast
import random
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..errors import BadInput
from ..files import atomic_write
from .compare import Compare
from .comparison import Comparison, from_mapping

TRAIN_LENGTH = 64
# 500 updates of 4,096 tokens are more than three passes over the 0.6M tokens of the embedded text.
FULL = {"updates": 500, "tokens_per_update": 4096, "eval_lengths": [64, 128, 256, 512, 1024]}
# Enough to see every step work; too little to learn much.
QUICK = {"updates": 60, "tokens_per_update": 2048, "eval_lengths": [64, 256, 1024]}

#: Parts of the standard library's folder that are tests, tools or not part of it.
_LEFT_OUT = {"test", "tests", "idlelib", "lib2to3", "turtledemo", "site-packages", "dist-packages"}


def comparison_of(text: Path | None, methods: list[str], quick: bool, out: Path) -> Comparison:
    """The demonstration as a comparison, of text files or the documentation of Python."""
    if text is not None and not text.exists():
        raise BadInput(f"{text} does not exist; --text takes a text file or a folder of them.")
    text = text or own_text_of(out)
    corpus = {"name": text.resolve().name.split(".")[0], "text": str(text)}
    return from_mapping(
        {
            "corpora": [{**corpus, "vocabulary": 1000 if quick else 2000}],
            "methods": methods,
            "train_lengths": TRAIN_LENGTH,
            "lr": 0.002,
            "title": f"Small models trained on {TRAIN_LENGTH} tokens",
            **(QUICK if quick else FULL),
        }
    )


@dataclass(frozen=True)
class Demonstration(Compare):
    """A comparison that explains its outcome."""

    quick: bool = False

    def prepare(self) -> None:
        text = own_text_of(self.folder)
        if str(text) in self.comparison.corpora[0].text and not text.is_file():
            with atomic_write(text) as file:
                file.write(python_documentation())
        super().prepare()

    def report(self) -> None:
        super().report()
        shortest, *_, longest = self.comparison.eval_lengths
        print(QUICK_NOTE if self.quick else NOTE.format(TRAIN_LENGTH, shortest, longest))


QUICK_NOTE = """
This was the quick form: it shows that every step works, and trains far too little to tell methods
apart. Leave --quick out for that."""
NOTE = """
What this shows. Each model read texts of {} tokens while it was trained. Then it was
tested on texts of {} to {} tokens. The numbers are perplexities: how many tokens
the model hesitates between, so lower is better. A model whose positions extrapolate keeps its
perplexity, or improves it, when texts get longer; one whose positions do not gets much worse."""


def own_text_of(folder: Path) -> Path:
    """Where the text of the demonstration lies."""
    return folder / "python-documentation.txt"


def python_documentation() -> str:
    """The text, the same for the same Python, without empty lines."""
    from pydoc_data.topics import topics

    documents = [topics[name] for name in sorted(topics)]
    root = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(root.rglob("*.py")):
        if not _LEFT_OUT & set(path.relative_to(root).parts):
            documents.append("\n".join(_docstrings(path)))
    # Modules of one kind stand together in the folder; mixed, the held-out part is typical.
    random.Random(0).shuffle(documents)
    lines = (line for document in documents for line in document.splitlines())
    return "".join(" ".join(line.split()) + "\n" for line in lines if line.strip())


def _docstrings(path: Path) -> Iterator[str]:
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, UnicodeDecodeError):  # the library ships some broken files on purpose
        return
    for node in ast.walk(tree):
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        if isinstance(node, documented) and (text := ast.get_docstring(node)):
            yield text
