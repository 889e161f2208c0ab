"""``python -m alibi_fairseq.paper``: write ``configs/`` from the recipes."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..files import atomic_write
from .catalogue import FOLDERS
from .render import all_files

CONFIGS = Path(__file__).resolve().parents[2] / "configs"


def write(folder: Path) -> tuple[list[str], list[str]]:
    """Make the recipes' folders in it hold exactly the generated files; others are left alone.

    Returns:
        The paths that were written and those that were removed.
    """
    files = all_files()
    written = []
    for path, content in files.items():
        target = folder / path
        if target.exists() and target.read_text(encoding="utf-8") == content:
            continue
        with atomic_write(target) as stream:
            stream.write(content)
        if target.suffix == ".sh":
            target.chmod(0o755)
        written.append(path)
    stale = [
        found
        for suffix in ("yaml", "sh")
        for name in FOLDERS
        for found in (folder / name).rglob(f"*.{suffix}")
        if str(found.relative_to(folder)) not in files
    ]
    for found in stale:
        found.unlink()
    return written, [str(found.relative_to(folder)) for found in stale]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m alibi_fairseq.paper", description=__doc__)
    parser.add_argument("--folder", type=Path, default=CONFIGS, help="default: configs/")
    folder = parser.parse_args().folder
    written, removed = write(folder)
    for path in written:
        print(f"wrote   {folder / path}")
    for path in removed:
        print(f"removed {folder / path}")
    if not written and not removed:
        print(f"{folder} is up to date.")


if __name__ == "__main__":
    main()
