"""The examples as notebooks: ``python examples/notebooks.py FOLDER``. The scripts are the source."""

from __future__ import annotations

import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def notebook(script: str) -> dict:
    """A notebook (format 4.5) of a script whose cells begin with ``# %%``."""
    cells = []
    for number, part in enumerate(script.split("# %%")[1:]):
        head, _, body = part.partition("\n")
        cell = {"id": f"cell-{number}", "metadata": {}, "cell_type": "code"}
        if "[markdown]" in head:
            body = "\n".join(line.removeprefix("#").removeprefix(" ") for line in body.split("\n"))
            cell["cell_type"] = "markdown"
        else:
            cell |= {"execution_count": None, "outputs": []}
        cells.append({**cell, "source": body.strip().splitlines(keepends=True)})
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for script in sorted(HERE.glob("*.py")):
        text = script.read_text(encoding="utf-8")
        if text.startswith("# %%"):
            path = folder / f"{script.stem}.ipynb"
            path.write_text(json.dumps(notebook(text), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
