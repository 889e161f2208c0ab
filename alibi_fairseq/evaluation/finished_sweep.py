"""Lookup of a finished sweep in its results file, without importing PyTorch or fairseq."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ..data.probe_data import PROBE_FILE, probe_of
from ..files import sha256_file
from ..results.data_folder import DataFolder
from ..results.data_hashes import data_sha256
from ..results.files import load_results_file
from ..results.record import AnyMeasurement
from ..results.results_file import EvaluationFile, ProbeFile, ResultsFile
from .config import PROBE_SUBSETS, SweepConfig
from .sweep_results import has_case, is_of_another_plugin, is_of_checkpoint


def find_finished(
    data: Path, checkpoints: list[Path], config: SweepConfig, out: Path
) -> list[AnyMeasurement] | None:
    """Return the records of a sweep from its results file, or None if one is missing.

    Measurements on any device count, unless the settings name one.

    Args:
        data: folder of fairseq's binary data.
        checkpoints: checkpoints of the sweep.
        config: settings of the sweep.
        out: results file.

    Raises:
        UserInputError: the file is not a results file.
    """
    folder = DataFolder.open(data)
    if not out.is_file():
        return None
    results = load_results_file(out)
    if (folder.path / PROBE_FILE).is_file():
        return _find_on_probe(folder, checkpoints, config, results)
    return _find_on_text(folder, checkpoints, config, results)


def _find_on_text(
    folder: DataFolder, checkpoints: list[Path], config: SweepConfig, results: ResultsFile
) -> list[AnyMeasurement] | None:
    """Return the records of a sweep on a text, or None if one is missing."""
    if not isinstance(results, EvaluationFile):
        return None
    if not _is_on_data(results, folder, folder.corpus, config.subsets):
        return None
    documents = _documents_sha256(folder, config)
    if config.per_document is not None and documents is None:
        return None
    records = [record for record in results.records if record.documents_sha256 == documents]
    cases = [case._asdict() for case in config.cases()]
    return _find_cases(records, checkpoints, config, cases)


def _find_on_probe(
    folder: DataFolder, checkpoints: list[Path], config: SweepConfig, results: ResultsFile
) -> list[AnyMeasurement] | None:
    """Return the records of a sweep on a probe, or None if one is missing."""
    if not isinstance(results, ProbeFile):
        return None
    if not _is_on_data(results, folder, probe_of(folder.path).name, PROBE_SUBSETS):
        return None
    return _find_cases(results.records, checkpoints, config, config.probe_cases())


def _is_on_data(
    results: ResultsFile, folder: DataFolder, corpus: str, subsets: Sequence[str]
) -> bool:
    """Return True if results were measured on the splits of a folder as they are now."""
    measured = (
        results.corpus,
        results.provenance.data_sha256,
        results.provenance.dictionary_sha256,
    )
    present = (corpus, data_sha256(folder.path, sorted(subsets)), folder.dictionary_sha256)
    return measured == present


def _find_cases(
    records: Sequence[AnyMeasurement],
    checkpoints: list[Path],
    config: SweepConfig,
    cases: list[dict],
) -> list[AnyMeasurement] | None:
    """Return the record of each checkpoint and case, or None if one is missing.

    Args:
        records: measurements on the present data.
        checkpoints: checkpoints of the sweep.
        config: settings of the sweep.
        cases: settings of each measurement, by their keys in its record.
    """
    with_settings = [record for record in records if _applies_to(config, record)]
    finished: list[AnyMeasurement] = []
    for checkpoint in dict.fromkeys(checkpoints):
        sha256 = sha256_file(checkpoint)
        of_checkpoint = []
        for record in with_settings:
            if is_of_checkpoint(record.model, checkpoint, sha256):
                of_checkpoint.append(record)
        for case in cases:
            of_case = [record for record in of_checkpoint if has_case(record, case)]
            if not of_case:
                return None
            finished.append(of_case[0])
    return finished


def _documents_sha256(folder: DataFolder, config: SweepConfig) -> str | None:
    """Return the hash of the positions where documents begin, or None without documents.

    It is also None if the positions follow from the text, which is read through fairseq.
    """
    starts = folder.document_starts
    if config.per_document is None or any(subset not in starts for subset in config.subsets):
        return None
    listed = {subset: starts[subset] for subset in config.subsets}
    return hashlib.sha256(json.dumps(listed, sort_keys=True).encode()).hexdigest()


def _applies_to(config: SweepConfig, record: AnyMeasurement) -> bool:
    """Return True if a record was measured with the settings and the present plugin."""
    if is_of_another_plugin(record.model):
        return False
    if config.device == "auto" and record.device is not None:
        config = replace(config, device=record.device)
    return config.applies_to(record)
