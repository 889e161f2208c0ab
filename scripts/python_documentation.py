"""Write about 2 MB of English technical prose that every Python installation carries.

    python scripts/python_documentation.py FILE

That is ``pydoc_data.topics`` and the docstrings of the standard library, the same for the same Python,
without empty lines. The sources are parsed, not imported: importing every module has side effects.
"""

from __future__ import annotations

import ast
import os
import random
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from pydoc_data.topics import topics

#: Parts of the standard library's folder that are tests, tools or not part of it.
LEFT_OUT = {"test", "tests", "idlelib", "lib2to3", "turtledemo", "site-packages", "dist-packages"}


def python_documentation() -> str:
    documents = [topics[name] for name in sorted(topics)]
    root = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(root.rglob("*.py")):
        if not LEFT_OUT & set(path.relative_to(root).parts):
            documents.append("\n".join(docstrings(path)))
    # Modules of one kind stand together in the folder; mixed, the held-out part is typical.
    random.Random(0).shuffle(documents)
    lines = (line for document in documents for line in document.splitlines())
    return "".join(" ".join(line.split()) + "\n" for line in lines if line.strip())


def docstrings(path: Path) -> Iterator[str]:
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, UnicodeDecodeError):  # the library ships some broken files on purpose
        return
    for node in ast.walk(tree):
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        if isinstance(node, documented) and (text := ast.get_docstring(node)):
            yield text


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_suffix(".unfinished")
    unfinished.write_text(python_documentation(), encoding="utf-8")
    os.replace(unfinished, target)
