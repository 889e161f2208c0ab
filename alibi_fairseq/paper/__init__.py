"""What the paper says and did: its runs (``configs/``), its tables and figures (``results/paper/``).

From the runs come the flags of ``alibi-fairseq launch`` for any number of GPUs, and what ``reproduce`` trains
for a table.
"""

from __future__ import annotations

from pathlib import Path


def data_folder(name: str, copy: str) -> Path:
    """A folder of a checkout, or the copy of it that setup.py puts into an installed package."""
    package = Path(__file__).resolve().parent.parent
    original = package.parent / name
    return original if (original / "README.md").is_file() else package / copy
