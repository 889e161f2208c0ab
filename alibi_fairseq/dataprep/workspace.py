"""The folder in which a corpus is prepared: resumable while it is made, whole once it is there."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from alibi_fairseq.errors import BadInput
from alibi_fairseq.files import atomic_write
from alibi_fairseq.results import manifest as manifests


class Workspace:
    """``OUT/work`` holds the steps of an unfinished preparation, ``OUT/data-bin`` a finished one.

    A context manager: inside of it the folder belongs to this process alone. A step's result is
    recorded when the step is finished; a run that is interrupted, even by SIGKILL, repeats the
    step it was in. When bad input is found before any step is finished, nothing stays behind.

    Args:
        out: the folder, made when it is missing.
        settings: what decides about the output (JSON values); kept so that two preparations
            never mix.
    """

    def __init__(self, out: str | os.PathLike, settings: dict):
        self.out = Path(out)
        self.work = self.out / "work"
        self.data_bin = self.out / "data-bin"
        self.unfinished_data_bin = self.work / "data-bin"
        self.settings = settings

    def finished(self) -> dict | None:
        """The manifest when ``OUT/data-bin`` already holds what is asked for.

        Raises:
            BadInput: it holds something else.
        """
        if not self.data_bin.exists():
            return None
        manifest = manifests.load(self.data_bin)
        if manifest is None:
            raise BadInput(
                f"{self.data_bin} exists but has no {manifests.FILE_NAME}, so it was not made by "
                "this script; choose another --out or move it away."
            )
        self._must_match(manifest["settings"], f"{self.data_bin} was prepared")
        shutil.rmtree(self.work, ignore_errors=True)
        return manifest

    def step(self, name: str, make: Callable[[], dict]) -> dict:
        """The result of a step: from its record, or made now and recorded.

        Args:
            make: does the work and returns a JSON object; repeated from its beginning if it was
                interrupted.
        """
        record = self.work / "steps" / f"{name}.json"
        if record.exists():
            return json.loads(record.read_text(encoding="utf-8"))
        result = make()
        with atomic_write(record) as stream:
            json.dump(result, stream)
        return result

    def add(self, file: Path, folder: str = "") -> None:
        """Copy a file into the unfinished binary data.

        Nothing is written there under a temporary name: a killed run would leave it to be published.
        """
        shutil.copyfile(file, self.unfinished_data_bin / folder / file.name)

    def publish(self, manifest: dict) -> None:
        """Move the finished binary data, with its manifest, to ``OUT/data-bin``."""
        manifests.save(manifest, self.work)
        self.add(self.work / manifests.FILE_NAME)
        os.replace(self.unfinished_data_bin, self.data_bin)
        shutil.rmtree(self.work)

    def __enter__(self) -> Workspace:
        self._made_out = not self.out.exists()
        try:
            self.work.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInput(
                f"--out {self.out}: cannot make this folder ({error.strerror})."
            ) from error
        self._lock = open(self.work / "lock", "w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.close()
            raise BadInput(
                f"Another process is preparing data in {self.out}; wait for it to end."
            ) from error
        kept = self.work / "settings.json"
        if kept.exists():
            self._must_match(
                json.loads(kept.read_text(encoding="utf-8")),
                f"{self.work} holds an unfinished preparation",
            )
        with atomic_write(kept) as stream:
            json.dump(self.settings, stream)
        return self

    def __exit__(self, kind, error, traceback) -> None:
        nothing_done = not (self.work / "steps").exists() and not list(self.work.glob("*.part"))
        if kind and issubclass(kind, BadInput) and nothing_done:
            shutil.rmtree(self.work)
            if self._made_out:
                self.out.rmdir()
        self._lock.close()

    def _must_match(self, found: dict, what: str) -> None:
        wanted = json.loads(json.dumps(self.settings))
        for key in sorted({*found, *wanted}):
            if found.get(key) != wanted.get(key):
                raise BadInput(
                    f"{what} with other settings ({key}: {found.get(key)!r} there, "
                    f"{wanted.get(key)!r} now); choose another --out or delete that folder."
                )


def check_disk(folder: str | os.PathLike, needed: float, what: str, option: str = "--out") -> None:
    """Stop before the work when the disk is too small for it.

    Args:
        folder: where the files will go; need not exist yet.
        needed: bytes, at the fullest moment.
        what: of what, for the sentence.
        option: the flag that names the folder, for the sentence.
    """
    existing = Path(folder).resolve()
    while not existing.exists():
        existing = existing.parent
    free = shutil.disk_usage(existing).free
    if free < needed:
        raise BadInput(
            f"{what} needs about {needed / 1e9:.1f} GB in {folder}, but only {free / 1e9:.1f} GB "
            f"are free there; make room or choose another {option}."
        )
