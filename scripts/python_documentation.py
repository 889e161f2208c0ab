"""Write about 2 MB of English technical prose from the Python installation.

    python scripts/python_documentation.py FILE

The text consists of ``pydoc_data.topics`` and the docstrings of the standard library, without empty
lines. It is the same for the same version of Python. The sources are parsed instead of imported,
because importing every module has side effects.
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

#: Folders that hold tests, tools, or packages outside the standard library.
EXCLUDED_FOLDERS = {
    "test",
    "tests",
    "idlelib",
    "lib2to3",
    "turtledemo",
    "site-packages",
    "dist-packages",
}


def python_documentation() -> str:
    """Return the text with normalized spaces."""
    documents = [topics[name] for name in sorted(topics)]
    root = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(root.rglob("*.py")):
        if not EXCLUDED_FOLDERS & set(path.relative_to(root).parts):
            documents.append("\n".join(docstrings(path)))
    # Related modules are neighbors in the folder. Shuffled, the held-out part is typical.
    random.Random(0).shuffle(documents)
    lines = []
    for document in documents:
        for line in document.splitlines():
            words = line.split()
            if words:
                lines.append(" ".join(words) + "\n")
    return "".join(lines)


def docstrings(path: Path) -> Iterator[str]:
    """Yield the docstrings of a source file."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, UnicodeDecodeError):  # some files of the library are broken on purpose
        return
    for node in ast.walk(tree):
        if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        text = ast.get_docstring(node)
        if text:
            yield text


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_suffix(".unfinished")
    unfinished.write_text(python_documentation(), encoding="utf-8")
    os.replace(unfinished, target)
