"""Evaluation step of a run, which knows if its results are complete or outdated."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ..data.probe_data import PROBE_FILE
from ..evaluation.config import SweepConfig, TextCase
from ..evaluation.option_types import format_stride
from ..results.completion import CompletionMarker
from ..results.data_hashes import data_folders
from ..results.identity import names_file
from ..results.results_file import load_results_file
from .child_process import ALIBI, ChildProcess
from .execution import Slot


class EvaluatedRun(Protocol):
    """Part of :class:`.run.Run` that an evaluation step uses."""

    @property
    def name(self) -> str: ...
    @property
    def folder(self) -> Path: ...
    @property
    def data(self) -> str: ...
    def checkpoint_path(self, updates: int | None = None) -> Path: ...
    def training_marker(self, updates: int | None = None) -> CompletionMarker: ...
    def training_command(self) -> ChildProcess: ...


@dataclass(frozen=True)
class EvalStep:
    """Evaluation sweep of a run's model: one ``alibi-fairseq eval``.

    Attributes:
        results_path: results file, which several steps of a run may share.
        config: settings of the sweep.
        updates: update count of the checkpoint. None: the checkpoint of the whole training.
        flags: further options of ``alibi-fairseq eval``, such as ``--user-dir``.
        name: name that distinguishes steps of a run with the same splits and strides.
        data: fairseq's data argument. Empty: the data of the run.
    """

    results_path: Path
    config: SweepConfig
    updates: int | None = None
    flags: tuple[str, ...] = ()
    name: str = ""
    data: str = ""

    @property
    def is_variant(self) -> bool:
        """True if the step overrides options of the model that the run was trained with.

        A named step with separate data is an evaluation on another corpus.
        """
        return bool(self.name) and not self.data

    @property
    def settings(self) -> dict:
        """Settings that determine the results, besides split, lengths, and strides.

        Overrides that all steps of a run share are left out.
        """
        settings: dict = {}
        if self.config.score_from is not None:
            settings["score_from"] = self.config.score_from
        if self.config.score_to is not None:
            settings["score_to"] = self.config.score_to
        if self.config.per_document is not None:
            settings["per_document"] = self.config.per_document
        if self.is_variant:
            settings["overrides"] = self.config.overrides
        return settings

    def command(self, run: EvaluatedRun) -> ChildProcess:
        """Build the command that evaluates a run."""
        checkpoint = run.checkpoint_path(self.updates)
        argv = [*ALIBI, "eval", self.data or run.data, "--path", str(checkpoint)]
        argv += [*self.config.flags(), "--out", str(self.results_path), *self.flags]
        title = f"evaluating {run.name}"
        if self.name:
            title += f" {self.name}"
        return ChildProcess(title, argv, run.folder / "evaluate.log")

    def is_complete(self, run: EvaluatedRun) -> bool:
        """Return True if all results exist and belong to the run's checkpoint and data."""
        records = self._records(run)
        if not self._match_checkpoint(run, records) or not self._marker(run).holds():
            return False
        measured = {case_of(record) for record in records}
        return measured.issuperset(self.cases)

    def is_outdated(self, run: EvaluatedRun) -> bool:
        """Return True if the results have other settings, other data, or another checkpoint."""
        marker = self._marker(run)
        if marker.path.is_file() and not marker.holds():
            return True
        records = self._records(run)
        splits = {case_of(record).subset for record in records}
        if not splits.issubset(self.config.subsets):
            return True
        shared_keys = self.config.record_keys()
        for record in records:
            if any(record.get(key) != value for key, value in shared_keys.items()):
                return True
        return not self._match_checkpoint(run, records)

    def delete_results(self, run: EvaluatedRun) -> None:
        """Delete the results file, and the marker that the step is complete."""
        self._marker(run).path.unlink(missing_ok=True)
        self.results_path.unlink(missing_ok=True)

    def execute(self, run: EvaluatedRun, slot: Slot) -> None:
        """Evaluate a run.

        Raises:
            Stopped, CommandFailedError: as :meth:`.ChildProcess.run`.
        """
        self.command(run).run(slot)
        self._marker(run).write()

    def _marker(self, run: EvaluatedRun) -> CompletionMarker:
        """Return the marker that the step is complete for a run's checkpoint and data."""
        checkpoint = run.checkpoint_path(self.updates)
        splits = ",".join(self.config.subsets)
        strides = ",".join(map(format_stride, self.config.strides))
        name_parts = ["evaluated", checkpoint.stem, splits, strides]
        if self.name:
            name_parts.append(self.name)
        sources = [checkpoint]
        for folder in data_folders(self.data or run.data):
            for subset in self.config.subsets:
                data_file = Path(folder) / f"{subset}.bin"
                if data_file.is_file():
                    sources.append(data_file)
        path = run.folder / f"{'-'.join(name_parts)}.json"
        return CompletionMarker(path, self.settings, sources)

    def _match_checkpoint(self, run: EvaluatedRun, records: list[dict]) -> bool:
        """Return True if all records were measured with the checkpoint that the run wrote."""
        sha256 = run.training_marker(self.updates).output_sha256
        return all(record["checkpoint_sha256"] == sha256 for record in records)

    def _records(self, run: EvaluatedRun) -> list[dict]:
        """Return the records in the results file that name the run's checkpoint."""
        if not self.results_path.is_file():
            return []
        return self._records_of(run, load_results_file(self.results_path))

    def _records_of(self, run: EvaluatedRun, results: dict) -> list[dict]:
        """Return the records that name the run's checkpoint. A results file belongs to one run."""
        checkpoint = run.checkpoint_path(self.updates)
        return [
            record
            for record in results["cells"]
            if names_file(record.get("checkpoint"), checkpoint)
        ]

    @property
    def cases(self) -> set[TextCase]:
        """Split, length, and stride of each measurement."""
        return set(self.config.cases())

    def load_results(self, run: EvaluatedRun) -> dict:
        """Return the results file without the records of other steps.

        The records have the present training command of the run, whose folder may have been moved.
        The records of a step with overridden options are labeled with its name.
        """
        results = load_results_file(self.results_path)
        records = self._records_of(run, results)
        records = [record for record in records if case_of(record) in self.cases]
        facts = {"train_command": run.training_command().command_line}
        if self.is_variant:
            facts["label"] = self.name
        records = [{**record, **facts} for record in records]
        return {**results, "cells": records}


class ProbeEvalStep(EvalStep):
    """Evaluation of a probe, with test sequences of the given lengths."""

    def _marker(self, run: EvaluatedRun) -> CompletionMarker:
        """Return the marker, which depends on the probe's settings instead of a split."""
        flags = (*self.config.override_flags(), *self.flags)
        settings = {"lengths": self.config.lengths, "flags": flags}
        sources = [run.checkpoint_path(self.updates), Path(run.data) / PROBE_FILE]
        return CompletionMarker(run.folder / "probed.json", settings, sources, [self.results_path])


def case_of(record: dict) -> TextCase:
    """Return split, length, and stride of a result record. Probes have no split or stride."""
    length = record["length"]
    return TextCase(record.get("subset", "valid"), length, record.get("stride", length))
