"""Completion markers for cached steps."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .errors import UserInputError
from .files import atomic_write, sha256_file


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
        self.settings = _as_read_back(settings or {})
        self._sources = _by_name(sources)
        self._outputs = _by_name(outputs)

    def holds(self) -> bool:
        """Return True if the step is done, and its settings, sources, and outputs are unchanged."""
        recorded = read_json_if_present(self.path)
        if recorded is None or recorded["settings"] != self.settings:
            return False
        if not _all_unchanged(self._sources, recorded["sources"]):
            return False
        return _all_unchanged(self._outputs, recorded["outputs"])

    def write(self, result: object = None) -> None:
        """Record that the step is done, and a JSON value with it."""
        content = {
            "settings": self.settings,
            "sources": _fingerprints(self._sources),
            "outputs": _fingerprints(self._outputs),
            "result": result,
        }
        with atomic_write(self.path) as stream:
            json.dump(content, stream, indent=1)

    @property
    def result(self) -> Any:
        """Result that was written, or None before."""
        recorded = read_json_if_present(self.path)
        return None if recorded is None else recorded.get("result")

    @property
    def output_sha256(self) -> str | None:
        """Hash of the first output when the marker was written, or None before."""
        recorded = read_json_if_present(self.path)
        if recorded is None:
            return None
        first = next(iter(recorded["outputs"].values()))
        return first["sha256"]


def write_settings(path: Path, settings: dict) -> None:
    """Write the settings of unfinished work into its folder, before it starts."""
    with atomic_write(path) as stream:
        json.dump(_as_read_back(settings), stream, indent=1)


def check_settings(existing: dict | None, wanted: dict, work: str, advice: str) -> None:
    """Check that existing work has the settings that it should have.

    Args:
        existing: settings of the existing work. None: there is none.
        wanted: settings that it should have.
        work: start of the error message.
        advice: last sentence of the error message.

    Raises:
        UserInputError: a setting differs. The message names the first one.
    """
    if existing is None:
        return
    wanted = _as_read_back(wanted)
    for key in sorted({*existing, *wanted}):
        before = existing.get(key)
        now = wanted.get(key)
        if before == now:
            continue
        difference = f"{key}: {before!r} there, {now!r} now"
        if isinstance(before, list) and isinstance(now, list):
            difference = _first_difference(key, before, now)
        elif isinstance(before, dict) and isinstance(now, dict):
            difference = f"{key} {_first_different_key(before, now)} differs"
        elif isinstance(before, dict) or isinstance(now, dict):
            difference = f"{key} differs"
        raise UserInputError(f"{work} with different settings ({difference}). {advice}")


def _first_difference(key: str, before: list, now: list) -> str:
    """Return a clause on the first difference between two lists, such as options of a command."""
    for number, (item, other) in enumerate(zip(before, now)):
        previous = str(before[number - 1]) if number else ""
        is_option_value = previous.startswith("--") and not str(item).startswith("--")
        if item != other and is_option_value:
            return f"{previous}: {item!r} there, {other!r} now"
        if item != other:
            break
    return f"{key} differs"


def _first_different_key(before: dict, now: dict) -> str:
    """Return the first key whose value differs, or that only one of the dictionaries has."""
    missing = object()
    for key in sorted({*before, *now}):
        if before.get(key, missing) != now.get(key, missing):
            return key
    raise ValueError("the dictionaries are equal")


def read_json_if_present(path: Path) -> dict | None:
    """Return the content of a marker or settings file, which is trusted; None without the file."""
    if not path.is_file():
        return None
    return json.loads(path.read_text(encoding="utf-8"))


def _by_name(paths: Iterable[Path]) -> dict[str, Path]:
    """Return files by number and name. Folders are left out, so that they can be moved."""
    return {f"{number} {path.name}": path for number, path in enumerate(paths)}


def _fingerprints(files: dict[str, Path]) -> dict[str, dict]:
    """Return size, modification time, and hash of each file."""
    fingerprints = {}
    for name, path in files.items():
        status = path.stat()
        fingerprints[name] = {
            "bytes": status.st_size,
            "mtime_ns": status.st_mtime_ns,
            "sha256": sha256_file(path),
        }
    return fingerprints


def _all_unchanged(files: dict[str, Path], fingerprints: dict[str, dict]) -> bool:
    """Return True if the files are the recorded ones and match their fingerprints."""
    if files.keys() != fingerprints.keys():
        return False
    return all(_is_unchanged(path, fingerprints[name]) for name, path in files.items())


def _is_unchanged(path: Path, fingerprint: dict) -> bool:
    """Return True if a file matches its fingerprint.

    It is read only if its modification time differs.
    """
    if not path.is_file():
        return False
    status = path.stat()
    if status.st_size != fingerprint["bytes"]:
        return False
    if status.st_mtime_ns == fingerprint["mtime_ns"]:
        return True
    return sha256_file(path) == fingerprint["sha256"]


def _as_read_back(settings: dict) -> dict:
    """Return settings as they are read back from JSON. For example, tuples become lists."""
    return json.loads(json.dumps(settings))
