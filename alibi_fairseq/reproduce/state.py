"""What is done: a stamp per step with what it was made from and what came out, by content."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import BadInput
from ..files import atomic_write, sha256_file


def fingerprint(path: Path) -> dict:
    """Size, time and SHA-256 of a file."""
    status = path.stat()
    return {
        "bytes": status.st_size,
        "mtime_ns": status.st_mtime_ns,
        "sha256": sha256_file(path),
    }


def unchanged(path: Path, kept: dict) -> bool:
    """Whether a file still is what its fingerprint says; read only when its time has changed."""
    if not path.is_file():
        return False
    status = path.stat()
    if status.st_size != kept["bytes"]:
        return False
    return status.st_mtime_ns == kept["mtime_ns"] or sha256_file(path) == kept["sha256"]


class Stamp:
    """A JSON file beside a step's output that says that the step is done, and from what.

    Args:
        path: the file.
        settings: JSON values that decide about the output.
        sources: files that decide about the output.
        outputs: files that the step makes; their folder is that of the stamp or below it.
    """

    def __init__(
        self, path: Path, settings: dict, sources: Iterable[Path], outputs: Iterable[Path]
    ):
        self.path = path
        self.settings = _json(settings)
        self.sources = list(sources)
        self.outputs = list(outputs)

    def holds(self) -> bool:
        """Whether the output and all that it was made from are what they were."""
        kept = self._kept()
        return (
            kept is not None
            and kept["settings"] == self.settings
            and _same(self._named(self.sources), kept["sources"])
            and _same(self._named(self.outputs), kept["outputs"])
        )

    def write(self) -> None:
        """Say that the step is done."""
        kept = {
            "settings": self.settings,
            "sources": {n: fingerprint(path) for n, path in self._named(self.sources).items()},
            "outputs": {n: fingerprint(path) for n, path in self._named(self.outputs).items()},
        }
        with atomic_write(self.path) as stream:
            json.dump(kept, stream, indent=1)

    def output_sha256(self) -> str | None:
        """The hash of the first output as it was written; None before."""
        kept = self._kept()
        return None if kept is None else next(iter(kept["outputs"].values()))["sha256"]

    def _kept(self) -> dict | None:
        if not self.path.is_file():
            return None
        return json.loads(self.path.read_text(encoding="utf-8"))

    @staticmethod
    def _named(paths: list[Path]) -> dict[str, Path]:
        """By a name without the place, so that a folder may be moved as a whole."""
        return {f"{number} {path.name}": path for number, path in enumerate(paths)}


def _same(paths: dict[str, Path], kept: dict) -> bool:
    return paths.keys() == kept.keys() and all(
        unchanged(path, kept[name]) for name, path in paths.items()
    )


def check_claim(path: Path, settings: dict) -> None:
    """Refuse to go on with what was begun with other settings.

    Args:
        path: the file that :func:`claim` writes into the folder.

    Raises:
        BadInput: the folder holds other work, or work that nobody has claimed.
    """
    if path.is_file():
        found, wanted = json.loads(path.read_text(encoding="utf-8")), _json(settings)
        for key in sorted({*found, *wanted}):
            if found.get(key) != wanted.get(key):
                raise BadInput(
                    f"{path.parent} was begun with other settings or other text ({key} differs); "
                    "move that folder away or choose another --work-dir."
                )
    elif any(path.parent.glob("checkpoint*.pt")):
        raise BadInput(
            f"{path.parent} holds checkpoints of which nobody knows what they were made from (no "
            f"{path.name}); move that folder away or choose another --work-dir."
        )


def claim(path: Path, settings: dict) -> None:
    """Keep in a folder what its work is begun with, before it begins."""
    check_claim(path, settings)
    if not path.is_file():
        with atomic_write(path) as stream:
            json.dump(_json(settings), stream, indent=1)


def _json(settings: dict) -> dict:
    return json.loads(json.dumps(settings))


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """The folder belongs to this process while the block lasts.

    Raises:
        BadInput: another process has it, or it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"--work-dir: cannot make {folder} ({error.strerror}).") from error
    with open(folder / "lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise BadInput(
                f"Another process is at work in {folder}; wait for it to end."
            ) from error
        yield
