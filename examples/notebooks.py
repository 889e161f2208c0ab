"""Convert the example scripts to notebooks: ``python examples/notebooks.py FOLDER``.

Requires ``./scripts/install.sh notebooks``.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent


def notebook(script: str, root: Path = ROOT) -> nbformat.NotebookNode:
    """Convert a script whose cells begin with ``# %%``.

    Args:
        root: folder to which the paths in the script are relative. A kernel starts in the folder of
            the notebook, so the first code cell changes to it.
    """
    cells = []
    for index, part in enumerate(script.split("# %%")[1:]):
        # Fixed IDs, so that the same script always gives the same file.
        cell_id = f"cell-{index}"
        marker, _, body = part.partition("\n")
        if "[markdown]" in marker:
            cells.append(new_markdown_cell(uncomment(body).strip(), id=cell_id))
        else:
            cells.append(new_code_cell(body.strip(), id=cell_id))
    change_folder = f"import os\n\nos.chdir({str(root)!r})"
    cells.insert(1, new_code_cell(change_folder, id="folder"))  # after the title
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
    parser = argparse.ArgumentParser(description="Convert the example scripts to notebooks.")
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="folder of the notebooks")
    main(parser.parse_args().folder)
