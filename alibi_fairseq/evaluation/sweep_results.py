"""Results file of a sweep, which is valid after every measurement."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ..checkpoints.loading import require_file
from ..errors import UserInputError
from ..positions.plugin_sources import plugin_sha256_of_record
from ..results.identity import identity, names_file
from ..results.merging import merge_results_files
from ..results.plugin_versions import warn_of_unknown_version
from ..results.provenance import utc_time
from ..results.results_file import load_results_file, new_results_file, save_results_file
from ..results.schema import TRAINING_FILE
from .config import SweepConfig
from .evaluator import Evaluator

logger = logging.getLogger(__name__)


class SweepResults:
    """Results of a sweep: the results in its output file, if that exists, and new ones.

    Args:
        path: results file.
        hashes: hashes of each checkpoint, by their keys in result records. ``checkpoint_sha256``
            identifies the contents of the checkpoint.
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
        self._shared_keys = config.record_keys()
        self._shared_keys["documents_sha256"] = evaluator.documents_sha256
        self._began = time.monotonic()
        self._hashes = hashes
        self._new = new_results_file(evaluator.kind, evaluator.corpus, provenance, [])
        self._files = [self._new]
        if path.exists():
            existing = load_results_file(path)
            self._check_settings(existing)
            self._files.insert(0, existing)

    def find(self, checkpoint: Path, case: dict) -> dict | None:
        """Return the record of a measurement, or None if it has not been made yet.

        Raises:
            UserInputError: the record belongs to another checkpoint of the same name.
        """
        wanted = set(identity({**self._shared_keys, **case}))
        for record in self._records():
            if not wanted <= set(identity(record)) or is_of_another_plugin(record):
                continue
            if self._is_of(checkpoint, record):
                return record
            if record.get("checkpoint") == str(checkpoint):
                raise UserInputError(
                    f"'{self._path}' contains results of another checkpoint with the name "
                    f"'{checkpoint}'. Choose another --out, or remove the file."
                )
        return None

    def _is_of(self, checkpoint: Path, record: dict) -> bool:
        """Return True if a record belongs to a checkpoint with its present contents."""
        sha256 = self._hashes[checkpoint]["checkpoint_sha256"]
        has_contents = record.get("checkpoint_sha256") == sha256
        return has_contents and names_file(record.get("checkpoint"), checkpoint)

    def of_checkpoint(self, checkpoint: Path) -> list[dict]:
        """Return all records of a checkpoint with its contents, from this and earlier sweeps.

        Records of another version of its plugin are left out.
        """
        records = []
        for record in self._records():
            if self._is_of(checkpoint, record) and not is_of_another_plugin(record):
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

    def add(self, checkpoint: Path, record: dict) -> None:
        """Complete a new record and write it to disk."""
        record.update(self._hashes[checkpoint])
        # Training may have written a record next to its checkpoints. A Hugging Face folder is no
        # checkpoint file, and a record next to it belongs to something else.
        with suppress(UserInputError):
            require_file(checkpoint)
            training = load_results_file(checkpoint.parent / TRAINING_FILE)
            record["train_command"] = training["provenance"]["command"]
            warn_of_edited_plugin(checkpoint, training["cells"], record)
        for key, value in self._shared_keys.items():
            if value is not None:
                record[key] = value
        self._new["cells"].append(record)
        self._new["provenance"]["date"] = utc_time()
        self._new["provenance"]["seconds"] = round(time.monotonic() - self._began, 3)
        save_results_file(merge_results_files(self._files), self._path)

    def _records(self) -> Iterator[dict]:
        """Yield the existing records, then the new ones."""
        for results in self._files:
            yield from results["cells"]

    def _check_settings(self, existing: dict) -> None:
        """Check that existing results were measured with the settings of this sweep."""
        expected = {
            "kind": self._new["kind"],
            "corpus": self._new["corpus"],
            "data_sha256": self._new["provenance"]["data_sha256"],
            "dictionary_sha256": self._new["provenance"]["dictionary_sha256"],
            **self._shared_keys,
        }
        for record in existing["cells"]:
            actual = {**existing, **existing["provenance"], **record}
            # Earlier versions did not record where documents begin.
            actual.setdefault("documents_sha256", expected["documents_sha256"])
            for key, value in expected.items():
                if actual.get(key) != value:
                    raise UserInputError(
                        f"'{self._path}' contains results of another sweep, with {key} "
                        f"{actual.get(key)} instead of {value}. Choose another --out, or remove "
                        "the file."
                    )


def is_of_another_plugin(record: dict) -> bool:
    """Return True if a record was measured with another version of the plugin of its model.

    A version is not compared if it is unknown.
    """
    version = plugin_sha256_of_record(record["position_method"])
    recorded_version = record.get("plugin_sha256")
    if version is None or version == recorded_version:
        return False
    if recorded_version is None:
        warn_of_unknown_version(record["position_method"])
        return False
    return True


def warn_of_edited_plugin(checkpoint: Path, trained: list[dict], record: dict) -> None:
    """Warn if the plugin of a model was edited between its training and its evaluation.

    Args:
        checkpoint: checkpoint of the model.
        trained: result records of its training.
        record: result record of the evaluation.
    """
    versions = {cell.get("plugin_sha256") for cell in trained} - {None}
    if versions and record.get("plugin_sha256") not in versions:
        _warn_once(f"'{checkpoint}' was trained with another version of its plugin.")


@functools.cache
def _warn_once(message: str) -> None:
    logger.warning(message)
