"""Completion markers for cached steps."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from alibi_fairseq.errors import UserInputError
from alibi_fairseq.files import atomic_write, sha256_file


class CompletionMarker:
    """JSON file that records a completed step and the contents that it was made from.

    Args:
        path: the file.
        settings: JSON values that determine the output.
        sources: files that determine the output.
        outputs: files that the step writes.
    """

    def __init__(
        self,
        path: Path,
        settings: dict | None = None,
        sources: Iterable[Path] = (),
        outputs: Iterable[Path] = (),
    ):
        self.path = path
        self.settings = _json(settings or {})
        # Without their folders, so that these can be moved.
        self._files = {
            kind: {f"{number} {path.name}": path for number, path in enumerate(paths)}
            for kind, paths in (("sources", sources), ("outputs", outputs))
        }

    def holds(self) -> bool:
        """Return True if the step is done, and its settings, sources, and outputs are unchanged."""
        kept = read_stamp(self.path)
        if kept is None or kept["settings"] != self.settings:
            return False
        return all(
            files.keys() == kept[kind].keys()
            and all(_unchanged(path, kept[kind][name]) for name, path in files.items())
            for kind, files in self._files.items()
        )

    def write(self, result: object = None) -> None:
        """Record that the step is done, and a JSON value with it."""
        hashes = {
            kind: {name: _fingerprint(path) for name, path in files.items()}
            for kind, files in self._files.items()
        }
        with atomic_write(self.path) as stream:
            json.dump({"settings": self.settings, **hashes, "result": result}, stream, indent=1)

    @property
    def result(self) -> object:
        """Result that was written, or None before."""
        return (read_stamp(self.path) or {}).get("result")

    @property
    def output_sha256(self) -> str | None:
        """Hash of the first output when the marker was written, or None before."""
        kept = read_stamp(self.path)
        return None if kept is None else next(iter(kept["outputs"].values()))["sha256"]


def run_cached(stamp: CompletionMarker, make: Callable[[], Any]) -> Any:
    """Return the result of ``make``.

    It comes from the marker if that holds. Otherwise it is computed and recorded.
    """
    if not stamp.holds():
        stamp.write(make())
    return stamp.result


def write_settings(path: Path, settings: dict) -> None:
    """Write the settings of unfinished work into its folder, before it begins."""
    with atomic_write(path) as stream:
        json.dump(_json(settings), stream, indent=1)


def check_settings(found: dict | None, wanted: dict, work: str, advice: str) -> None:
    """Compare the settings of existing work (None: there is no work) with the wanted settings.

    Raises:
        UserInputError: a setting differs; the sentence begins with ``work``, names the first one
            and ends with ``advice``.
    """
    if found is None:
        return
    wanted = _json(wanted)
    for key in sorted({*found, *wanted}):
        there, here = found.get(key), wanted.get(key)
        if there != here:
            long = isinstance(there, dict | list) or isinstance(here, dict | list)
            difference = f"{key} differs" if long else f"{key}: {there!r} there, {here!r} now"
            raise UserInputError(f"{work} with other settings ({difference}); {advice}.")


def _fingerprint(path: Path) -> dict:
    status = path.stat()
    return {
        "bytes": status.st_size,
        "mtime_ns": status.st_mtime_ns,
        "sha256": sha256_file(path),
    }


def _unchanged(path: Path, kept: dict) -> bool:
    """Return True if a file matches its fingerprint.

    The file is read only if its modification time differs.
    """
    if not path.is_file() or path.stat().st_size != kept["bytes"]:
        return False
    return path.stat().st_mtime_ns == kept["mtime_ns"] or sha256_file(path) == kept["sha256"]


def read_stamp(path: Path) -> dict | None:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def _json(settings: dict) -> dict:
    """Return settings as JSON reads them back: tuples become lists."""
    return json.loads(json.dumps(settings))
