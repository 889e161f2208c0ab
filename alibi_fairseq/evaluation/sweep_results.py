"""Results file of a sweep, which is valid after every measurement.

The file may have other results, which are kept. A new result replaces the one with its identity.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import UserInputError
from ..results.files import load_results_file, merge_results_files, merge_series, save_results_file
from ..results.provenance import utc_time
from ..results.record import AnyMeasurement
from ..results.result import Result, Wanted, is_wanted, replaces
from ..results.results_file import FILE_CLASSES, Provenance, ResultsFile
from ..results.series import Series
from ..results.upgrade import upgraded
from .config import SweepConfig
from .evaluator import Evaluator


class Known(NamedTuple):
    """Record of a measurement, and the result that it is."""

    record: AnyMeasurement
    result: Result


def known_results(results: ResultsFile, folder: Path) -> list[Known]:
    """Return the records of a results file as results.

    Args:
        folder: folder of the file.
    """
    return list(map(Known, results.records, upgraded(results, folder)))


def of_checkpoint(known: list[Known], checkpoint: Path, sha256: str | None) -> list[Known]:
    """Return the results of a checkpoint, the oldest first.

    Args:
        checkpoint: path of the checkpoint. Its folder may have been moved.
        sha256: hash of its present contents; None if they are unknown, and do not matter.
    """
    found = []
    for entry in known:
        model = entry.record.model
        if model.checkpoint_name != checkpoint.name:
            continue
        if sha256 in (None, model.checkpoint_sha256):
            found.append(entry)
    return found


class SweepResults:
    """Results of a sweep: the results in its output file, if that exists, and new ones.

    Args:
        path: results file.
        hashes: hashes of each checkpoint, by their keys in the record of its model.
            ``checkpoint_sha256`` identifies the contents of the checkpoint.
        config: settings of the sweep.
        evaluator: evaluator of the sweep.
        provenance: provenance of new results.

    Raises:
        UserInputError: the file is not a results file, or has results of another kind.
    """

    def __init__(
        self,
        path: Path,
        hashes: dict[Path, dict[str, str]],
        config: SweepConfig,
        evaluator: Evaluator,
        provenance: dict,
    ):
        self._path = path
        self._config = config
        self._evaluator = evaluator
        self._began = time.monotonic()
        self._hashes = hashes
        self._new = FILE_CLASSES[evaluator.kind](
            corpus=evaluator.corpus, provenance=Provenance(**provenance), records=[]
        )
        self._existing: Any = None
        if path.exists():
            self._existing = load_results_file(path)
            if self._existing.kind != self._new.kind:
                raise UserInputError(
                    f"'{path}' contains results of kind {self._existing.kind}, not "
                    f"{self._new.kind}. Choose another --out, or remove the file."
                )
        self._known = self._read_known()

    def find(self, checkpoint: Path, case: dict) -> AnyMeasurement | None:
        """Return the record of a measurement, or None if it has not been made yet."""
        known = self._of_checkpoint(checkpoint)
        if not known:
            return None
        wanted = self._evaluator.wanted(case, known[-1].result)
        for record, result in known:
            if is_wanted(result, wanted):
                return record
        return None

    def on_same_text(self, checkpoint: Path, case: dict) -> list[AnyMeasurement]:
        """Return the records of a checkpoint that differ from a case in the windows at most."""
        known = self._of_checkpoint(checkpoint)
        if not known:
            return []
        wanted = self._evaluator.wanted(case, known[-1].result)
        records = []
        for record, result in known:
            if is_wanted(result, _in_windows_of(wanted, result)):
                records.append(record)
        return records

    def _of_checkpoint(self, checkpoint: Path) -> list[Known]:
        """Return the results of a checkpoint with its present contents."""
        return of_checkpoint(self._known, checkpoint, self._hashes[checkpoint]["checkpoint_sha256"])

    def _read_known(self) -> list[Known]:
        """Return all results, the existing ones first."""
        files = self._files()
        records = [record for file in files for record in file.records]
        together = {"records": records, "series": merge_series(files)}
        combined = self._new.model_copy(update=together)
        return known_results(combined, self._path.parent)

    def _files(self) -> list[Any]:
        """Return the existing results and the new ones, as far as there are any."""
        files = [file for file in (self._existing, self._new) if file is not None]
        return [file for file in files if file.records]

    def check_unchanged(self, checkpoint: Path, hashes: dict[str, str]) -> None:
        """Check that a checkpoint still has the contents under whose hashes it is recorded.

        Args:
            checkpoint: a checkpoint of the sweep.
            hashes: its present hashes, computed after loading it.

        Raises:
            UserInputError: it has different contents.
        """
        if hashes != self._hashes[checkpoint]:
            raise UserInputError(
                f"'{checkpoint}' was replaced during the evaluation. Evaluate a copy, or wait for "
                "the end of the training."
            )

    def set_series(self, checkpoint: Path, series: Series) -> None:
        """Note how a checkpoint was trained, for its new records."""
        self._new.series[self._hashes[checkpoint]["checkpoint_sha256"]] = series

    def add(self, checkpoint: Path, record: AnyMeasurement) -> None:
        """Complete a new record and write it to disk."""
        record = record.with_model(
            precision=self._config.precision,
            overrides=self._config.overrides or None,
            **self._hashes[checkpoint],
        )
        if record.data_sha256 is None:
            record.data_sha256 = self._new.provenance.data_sha256
        self._new.records.append(record)
        self._known = self._read_known()
        self._remove_replaced()
        self._new.provenance.date = utc_time()
        self._new.provenance.seconds = round(time.monotonic() - self._began, 3)
        save_results_file(merge_results_files(self._files()), self._path)

    def _remove_replaced(self) -> None:
        """Remove the records that the last one replaces."""
        *earlier, last = self._known
        kept = [known for known in earlier if not replaces(last.result, known.result)]
        self._known = [*kept, last]
        for file in self._files():
            file.records = [record for record in file.records if self._is_known(record)]

    def _is_known(self, record: AnyMeasurement) -> bool:
        """Return True if a record is among the known ones; equal records are not the same."""
        return any(known.record is record for known in self._known)


def _in_windows_of(wanted: Wanted, result: Result) -> Wanted:
    """Return a wanted result at the length and stride of another one."""
    case = replace(wanted.case, length=result.case.length, stride=result.case.stride)
    return replace(wanted, case=case)
