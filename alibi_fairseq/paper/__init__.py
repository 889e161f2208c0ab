"""The paper's published numbers and training recipes, their reproduction, and the report.

The recipes are the YAML files of ``configs/``, the published numbers the CSV files of
``results/paper/``.
"""

from __future__ import annotations

from pathlib import Path


def packaged_folder(name: str, copy: str) -> Path:
    """Return a folder of files, of a checkout or of an installed package.

    Args:
        name: path of the folder in a checkout.
        copy: name of its copy that setup.py puts into an installed package.
    """
    package = Path(__file__).resolve().parent.parent
    original = package.parent / name
    is_checkout = (original / "README.md").is_file()
    return original if is_checkout else package / copy
