"""Convert the example scripts to notebooks: ``python examples/notebooks.py FOLDER``.

Requires ``./scripts/install.sh notebooks``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

HERE = Path(__file__).resolve().parent


def notebook(script: str) -> nbformat.NotebookNode:
    """Convert a script whose cells begin with ``# %%``."""
    cells = []
    for index, part in enumerate(script.split("# %%")[1:]):
        # Fixed IDs, so that the same script always gives the same file.
        cell_id = f"cell-{index}"
        marker, _, body = part.partition("\n")
        if "[markdown]" in marker:
            cells.append(new_markdown_cell(uncomment(body).strip(), id=cell_id))
        else:
            cells.append(new_code_cell(body.strip(), id=cell_id))
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return new_notebook(cells=cells, metadata={"kernelspec": kernel})


def uncomment(text: str) -> str:
    """Remove the comment sign at the start of every line."""
    lines = [line.removeprefix("#").removeprefix(" ") for line in text.split("\n")]
    return "\n".join(lines)


def main(folder: Path) -> None:
    """Write the notebooks into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for script in sorted(HERE.glob("*.py")):
        text = script.read_text(encoding="utf-8")
        if text.startswith("# %%"):
            nbformat.write(notebook(text), folder / f"{script.stem}.ipynb")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
