"""The folder in which a corpus is prepared: resumable until the finished data appears as a whole."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from alibi_fairseq.errors import BadInput
from alibi_fairseq.files import locked
from alibi_fairseq.results import manifest as manifests
from alibi_fairseq.results.stamps import Claim, Stamp, check_settings, once


class Workspace:
    """``OUT/work`` holds the steps of an unfinished preparation, ``OUT/data-bin`` a finished one.

    A context manager that locks the folder. The steps are functions of one process, stamped by
    :mod:`alibi_fairseq.results.stamps`; what is added here is that the finished folder appears at once and
    that bad input found before the first step is finished leaves nothing behind.

    Args:
        out: the folder, created if it is missing.
        settings: JSON values that determine the output; preparations with different settings are
            never mixed.
    """

    _ADVICE = "choose another --out or delete that folder"

    def __init__(self, out: str | os.PathLike, settings: dict):
        self.out = Path(out)
        self.work = self.out / "work"
        self.data_bin = self.out / "data-bin"
        self.unfinished_data_bin = self.work / "data-bin"
        self.settings = settings

    def finished(self) -> dict | None:
        """The manifest if ``OUT/data-bin`` already holds the requested data, otherwise None.

        Raises:
            BadInput: it holds other data.
        """
        if not self.data_bin.exists():
            return None
        manifest = manifests.load(self.data_bin)
        if manifest is None:
            raise BadInput(
                f"{self.data_bin} exists but has no {manifests.FILE_NAME}, so it was not made by "
                "this script; choose another --out or move it away."
            )
        check_settings(
            manifest["settings"], self.settings, f"{self.data_bin} was prepared", self._ADVICE
        )
        shutil.rmtree(self.work, ignore_errors=True)
        return manifest

    def step(self, name: str, make: Callable[[], dict]) -> dict:
        """The result of a step of the preparation: kept from before, or computed and kept.

        Args:
            make: does the work and returns a JSON object; starts over if it was interrupted.
        """
        return once(Stamp(self.work / "steps" / f"{name}.json"), make)

    def add(self, file: Path, folder: str = "") -> None:
        """Copy a file into the unfinished binary data.

        Not under a temporary name, which a killed run would leave there to be published.
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
        with ExitStack() as stack:
            stack.enter_context(locked(self.work / "lock", "--out", "preparation"))
            claim = Claim(self.work / "settings.json", self.settings)
            claim.check(f"{self.work} holds an unfinished preparation", self._ADVICE)
            claim.write()
            self._lock = stack.pop_all()
        return self

    def __exit__(self, kind, error, traceback) -> None:
        nothing_done = not (self.work / "steps").exists() and not list(self.work.glob("*.part"))
        if kind and issubclass(kind, BadInput) and nothing_done:
            shutil.rmtree(self.work)
            if self._made_out:
                self.out.rmdir()
        self._lock.close()
