"""Lookup of a finished sweep in its results file, without importing PyTorch or fairseq."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

from ..data.probe_data import PROBE_FILE
from ..files import sha256_file
from ..results.data_folder import DataFolder
from ..results.data_hashes import data_sha256
from ..results.files import load_results_file
from ..results.record import AnyMeasurement, Measurement
from ..results.results_file import EvaluationFile
from .config import SweepConfig, TextCase
from .sweep_results import is_of_another_plugin


def find_finished(
    data: Path, checkpoints: list[Path], config: SweepConfig, out: Path
) -> list[AnyMeasurement] | None:
    """Return the records of a sweep on a text from its results file, or None if one is missing.

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
    if not out.is_file() or (folder.path / PROBE_FILE).is_file():
        return None
    results = load_results_file(out)
    if not isinstance(results, EvaluationFile) or not _is_on_data(results, folder, config):
        return None
    documents = _documents_sha256(folder, config)
    if config.per_document is not None and documents is None:
        return None
    records: list[AnyMeasurement] = []
    for checkpoint in dict.fromkeys(checkpoints):
        sha256 = sha256_file(checkpoint)
        finished = {}
        for record in results.records:
            is_of_checkpoint = record.model.checkpoint_sha256 == sha256
            has_name = record.model.checkpoint_name == checkpoint.name
            has_settings = _applies_to(config, record) and record.documents_sha256 == documents
            if is_of_checkpoint and has_name and has_settings:
                finished[TextCase.of(record)] = record
        for case in config.cases():
            if case not in finished:
                return None
            records.append(finished[case])
    return records


def _is_on_data(results: EvaluationFile, folder: DataFolder, config: SweepConfig) -> bool:
    """Return True if results were measured on the splits of a folder as they are now."""
    measured = (
        results.corpus,
        results.provenance.data_sha256,
        results.provenance.dictionary_sha256,
    )
    subsets = sorted(config.subsets)
    present = (folder.corpus, data_sha256(folder.path, subsets), folder.dictionary_sha256)
    return measured == present


def _documents_sha256(folder: DataFolder, config: SweepConfig) -> str | None:
    """Return the hash of the positions where documents begin, or None without documents.

    It is also None if the positions follow from the text, which is read through fairseq.
    """
    starts = folder.document_starts
    if config.per_document is None or any(subset not in starts for subset in config.subsets):
        return None
    listed = {subset: starts[subset] for subset in config.subsets}
    return hashlib.sha256(json.dumps(listed, sort_keys=True).encode()).hexdigest()


def _applies_to(config: SweepConfig, record: Measurement) -> bool:
    """Return True if a record was measured with the settings and the present plugin."""
    if config.device == "auto" and record.device is not None:
        config = replace(config, device=record.device)
    return config.applies_to(record) and not is_of_another_plugin(record.model)
