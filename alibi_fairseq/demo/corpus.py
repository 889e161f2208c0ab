"""The demonstration's text: Python's own documentation, or the user's files.

``pydoc_data.topics`` and the docstrings of the standard library are about 2 MB of English technical
prose that every Python installation carries, so nothing is downloaded. The sources are parsed, not
imported: importing every module of a standard library has side effects.
"""

from __future__ import annotations

import ast
import random
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from ..errors import BadInput

#: Parts of the standard library's folder that are tests, tools or not part of it.
_LEFT_OUT = {"test", "tests", "idlelib", "lib2to3", "turtledemo", "site-packages", "dist-packages"}
_TEXT_ENDINGS = (".txt", ".md", ".rst")
_HELD_OUT = 0.04  # of all lines, each for validation and for testing
_LEAST_BYTES = 100_000


def split_text(source: Path | None) -> dict[str, list[str]]:
    """Lines of text for training, validation and testing; the same for the same source.

    Args:
        source: a text file or a folder of text files; None is Python's own documentation.

    Returns:
        ``{"train": …, "valid": …, "test": …}``; the held-out lines are the last ones, whole
        stretches of text, so that long contexts mean something.

    Raises:
        BadInput: no text there, or too little of it.
    """
    documents = list(_python_documentation() if source is None else _files_of(source))
    lines = [line for document in documents for line in _clean(document)]
    size = sum(len(line.encode()) for line in lines)
    if size < _LEAST_BYTES:
        raise BadInput(
            f"{source} holds {size:,} bytes of text; the demonstration needs at least "
            f"{_LEAST_BYTES:,} to train a vocabulary and two models."
        )
    held_out = max(1, int(len(lines) * _HELD_OUT))
    return {
        "train": lines[: -2 * held_out],
        "valid": lines[-2 * held_out : -held_out],
        "test": lines[-held_out:],
    }


def _clean(document: str) -> list[str]:
    return [" ".join(line.split()) for line in document.splitlines() if line.strip()]


def _python_documentation() -> Iterator[str]:
    from pydoc_data.topics import topics

    documents = [topics[name] for name in sorted(topics)]
    root = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(root.rglob("*.py")):
        if not _LEFT_OUT & set(path.relative_to(root).parts):
            documents.append("\n".join(_docstrings(path)))
    # Modules of one kind stand together in the folder; mixed, the held-out part is typical.
    random.Random(0).shuffle(documents)
    yield from documents


def _docstrings(path: Path) -> Iterator[str]:
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, UnicodeDecodeError):  # the library ships some broken files on purpose
        return
    for node in ast.walk(tree):
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        if isinstance(node, documented) and (text := ast.get_docstring(node)):
            yield text


def _files_of(source: Path) -> Iterator[str]:
    if not source.exists():
        raise BadInput(f"{source} does not exist; --text takes a text file or a folder of them.")
    paths = [source]
    if source.is_dir():
        paths = sorted(p for p in source.rglob("*") if p.suffix.lower() in _TEXT_ENDINGS)
        if not paths:
            raise BadInput(f"{source} holds no {', '.join(_TEXT_ENDINGS)} files.")
    for path in paths:
        try:
            yield path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise BadInput(f"{path} is not UTF-8 text; convert it or leave it out.") from error
