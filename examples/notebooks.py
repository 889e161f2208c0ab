"""The examples as notebooks: ``python examples/notebooks.py FOLDER``. The scripts are the source.

Needs ``pip install 'alibi-fairseq[notebooks]'``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

HERE = Path(__file__).resolve().parent


def notebook(script: str) -> nbformat.NotebookNode:
    """The notebook of a script whose cells begin with ``# %%``."""
    cells = []
    for number, part in enumerate(script.split("# %%")[1:]):
        head, _, body = part.partition("\n")
        new_cell = new_code_cell
        if "[markdown]" in head:
            new_cell = new_markdown_cell
            body = "\n".join(line.removeprefix("#").removeprefix(" ") for line in body.split("\n"))
        # Numbered, so that the same script always gives the same file.
        cells.append(new_cell(body.strip(), id=f"cell-{number}"))
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return new_notebook(cells=cells, metadata={"kernelspec": kernel})


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for script in sorted(HERE.glob("*.py")):
        text = script.read_text(encoding="utf-8")
        if text.startswith("# %%"):
            nbformat.write(notebook(text), folder / f"{script.stem}.ipynb")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
