"""Results file of a sweep, which is valid after every measurement."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from ..errors import UserInputError
from ..positions.plugin_sources import plugin_sha256
from ..results.files import load_results_file, merge_results_files, save_results_file
from ..results.model import Model
from ..results.provenance import utc_time
from ..results.record import AnyMeasurement
from ..results.results_file import FILE_CLASSES, Provenance
from ..results.series import Series
from .config import SweepConfig
from .evaluator import Evaluator


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
        UserInputError: the file is not a results file, or was measured with other settings.
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
        self._settings = evaluator.settings
        self._began = time.monotonic()
        self._hashes = hashes
        self._new = FILE_CLASSES[evaluator.kind](
            corpus=evaluator.corpus, provenance=Provenance(**provenance), records=[]
        )
        self._files = [self._new]
        if path.exists():
            existing = load_results_file(path)
            self._check_settings(existing)
            self._files.insert(0, existing)

    def find(self, checkpoint: Path, case: dict) -> AnyMeasurement | None:
        """Return the record of a measurement, or None if it has not been made yet.

        Raises:
            UserInputError: the record belongs to another checkpoint of the same name.
        """
        for record in self._records():
            if not has_case(record, case) or is_of_another_plugin(record.model):
                continue
            if self._is_of(checkpoint, record.model):
                return record
            if record.model.checkpoint == str(checkpoint):
                raise UserInputError(
                    f"'{self._path}' contains results of another checkpoint with the name "
                    f"'{checkpoint}'. Choose another --out, or remove the file."
                )
        return None

    def _is_of(self, checkpoint: Path, model: Model) -> bool:
        """Return True if a record belongs to a checkpoint with its present contents."""
        return is_of_checkpoint(model, checkpoint, self._hashes[checkpoint]["checkpoint_sha256"])

    def of_checkpoint(self, checkpoint: Path) -> list[AnyMeasurement]:
        """Return all records of a checkpoint with its contents, from this and earlier sweeps.

        Records of another version of its plugin are left out.
        """
        records = []
        for record in self._records():
            if self._is_of(checkpoint, record.model) and not is_of_another_plugin(record.model):
                records.append(record)
        return records

    def check_unchanged(self, checkpoint: Path, hashes: dict[str, str]) -> None:
        """Check that a checkpoint still has the contents under whose hashes it is recorded.

        Args:
            checkpoint: a checkpoint of the sweep.
            hashes: its present hashes, computed after loading it.

        Raises:
            UserInputError: it has other contents.
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
        self._new.provenance.date = utc_time()
        self._new.provenance.seconds = round(time.monotonic() - self._began, 3)
        save_results_file(merge_results_files(self._files), self._path)

    def _records(self) -> list[Any]:
        """Return the existing records, then the new ones."""
        return [record for results in self._files for record in results.records]

    def _check_settings(self, existing: Any) -> None:
        """Check that existing results were measured with the settings of this sweep."""
        self._check_setting("kind", existing.kind, self._new.kind)
        self._check_setting("corpus", existing.corpus, self._new.corpus)
        for key in ("data_sha256", "dictionary_sha256"):
            actual = getattr(existing.provenance, key)
            self._check_setting(key, actual, getattr(self._new.provenance, key))
        for record in existing.records:
            self._check_setting("precision", record.model.precision, self._config.precision)
            overrides = self._config.overrides or None
            self._check_setting("overrides", record.model.overrides, overrides)
            for key, value in self._settings.items():
                self._check_setting(key, getattr(record, key), value)

    def _check_setting(self, key: str, actual: Any, expected: Any) -> None:
        """Check one setting of existing results."""
        if actual != expected:
            raise UserInputError(
                f"'{self._path}' contains results of another sweep, with {key} {actual} instead "
                f"of {expected}. Choose another --out, or remove the file."
            )


def is_of_checkpoint(model: Model, checkpoint: Path, sha256: str) -> bool:
    """Return True if the record of a model has the name and the contents of a checkpoint.

    Args:
        model: the record.
        checkpoint: path of the checkpoint. Its folder may have been moved.
        sha256: hash of its present contents.
    """
    return model.checkpoint_sha256 == sha256 and model.checkpoint_name == checkpoint.name


def has_case(record: AnyMeasurement, case: dict) -> bool:
    """Return True if a record has the settings of a case, by their keys."""
    return all(getattr(record, key) == value for key, value in case.items())


def is_of_another_plugin(model: Model) -> bool:
    """Return True if a model was measured with another version of its plugin."""
    return plugin_sha256(model.method.names) != model.plugin_sha256
