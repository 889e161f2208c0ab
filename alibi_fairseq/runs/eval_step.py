"""Evaluation step of a run: one evaluation of the trained model.

A step is complete if a completion marker in the folder of the run holds and the results file has a
record of each case.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from tqdm import tqdm

from ..completion_marker import CompletionMarker
from ..data.probe_data import PROBE_FILE
from ..evaluation.config import SweepConfig, TextCase
from ..evaluation.option_types import format_stride
from ..reporting import markdown
from ..results.data_folder import DOCUMENTS_FILE
from ..results.data_hashes import data_folders
from ..results.files import load_evaluation
from ..results.record import AnyMeasurement, ProbeMeasurement
from ..results.results_file import EvaluationFile, ProbeFile
from .child_process import ALIBI, ChildProcess
from .execution import Slot


@dataclass(frozen=True)
class TrainedModel:
    """Checkpoint of a run, as an evaluation step takes it.

    Attributes:
        name: name of the run.
        data: fairseq's data argument of the training.
        checkpoint: path of the checkpoint. Its folder is that of the run.
        checkpoint_sha256: hash that the checkpoint had when it was trained, or None before.
    """

    name: str
    data: str
    checkpoint: Path
    checkpoint_sha256: str | None

    @property
    def folder(self) -> Path:
        """Folder of the run."""
        return self.checkpoint.parent


@dataclass(frozen=True)
class EvalStep:
    """Evaluation sweep of a trained model: one ``alibi-fairseq eval``.

    Attributes:
        results_path: results file, which several steps of a run may share.
        config: settings of the sweep.
        updates: update count of the checkpoint. None: the checkpoint of the whole training.
        flags: further options of ``alibi-fairseq eval``, such as ``--user-dir``.
        name: name that distinguishes steps of a run with the same splits and strides.
    """

    results_path: Path
    config: SweepConfig
    updates: int | None = None
    flags: tuple[str, ...] = ()
    name: str = ""

    @property
    def is_variant(self) -> bool:
        """True if the step overrides options of the model that the run was trained with."""
        return bool(self.name)

    def data_of(self, model: TrainedModel) -> str:
        """Return fairseq's data argument of the text to evaluate, which a subclass may change."""
        return model.data

    @property
    def settings(self) -> dict:
        """Settings that determine the results, besides split, lengths, and strides.

        Only a variant has overrides of its own. All steps of a run share the others.
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

    def command(self, model: TrainedModel) -> ChildProcess:
        """Build the command that evaluates a model."""
        argv = [*ALIBI, "eval", self.data_of(model), "--path", str(model.checkpoint)]
        argv += self.config.flags()
        argv += ["--out", str(self.results_path)]
        argv += self.flags
        title = f"evaluating {model.name}"
        if self.name:
            title += f" {self.name}"
        return ChildProcess(title, argv, model.folder / "evaluate.log")

    def is_complete(self, model: TrainedModel) -> bool:
        """Return True if all results exist and belong to the model's checkpoint and data.

        The marker does not show that another step has replaced the results since.
        """
        records = self._load_records(model)
        if not self._are_of_checkpoint(model, records):
            return False
        if not all(self.config.measures(record) for record in records):
            return False
        if not self._marker(model).holds():
            return False
        measured = {TextCase.of(record) for record in records}
        return measured.issuperset(self.cases)

    def is_outdated(self, model: TrainedModel) -> bool:
        """Return True if results exist with other settings, other data, or another checkpoint."""
        marker = self._marker(model)
        if marker.path.is_file() and not marker.holds():
            return True
        records = self._load_records(model)
        splits = {TextCase.of(record).subset for record in records}
        if not splits.issubset(self.config.subsets):
            return True
        if not all(self.config.applies_to(record) for record in records):
            return True
        return not self._are_of_checkpoint(model, records)

    def delete_results(self, model: TrainedModel) -> None:
        """Delete the results file, and the marker that the step is complete."""
        self._marker(model).path.unlink(missing_ok=True)
        self.results_path.unlink(missing_ok=True)

    def execute(self, model: TrainedModel, slot: Slot) -> None:
        """Evaluate a model.

        Raises:
            Stopped, CommandFailedError: as :meth:`.ChildProcess.run`.
        """
        self.command(model).run(slot)
        self._marker(model).write()
        summary = _summary(self.load_results(model).records)
        tqdm.write(f"{model.name}: {summary}", file=sys.stdout)

    def _marker(self, model: TrainedModel) -> CompletionMarker:
        """Return the marker that the step is complete for a model's checkpoint and data."""
        splits = ",".join(self.config.subsets)
        strides = ",".join(map(format_stride, self.config.strides))
        name = f"evaluated-{model.checkpoint.stem}-{splits}-{strides}"
        if self.name:
            name += f"-{self.name}"
        sources = [model.checkpoint, *self._data_files(model)]
        return CompletionMarker(model.folder / f"{name}.json", self.settings, sources)

    def _data_files(self, model: TrainedModel) -> list[Path]:
        """Return the files of the splits, which may be in any of several data folders.

        These are the ``.bin`` files, and ``documents.json`` if documents count.
        """
        names = [f"{subset}.bin" for subset in self.config.subsets]
        if self.config.per_document is not None:
            names.append(DOCUMENTS_FILE)
        files = []
        for folder in data_folders(self.data_of(model)):
            for name in names:
                file = Path(folder) / name
                if file.is_file():
                    files.append(file)
        return files

    def _are_of_checkpoint(self, model: TrainedModel, records: list[AnyMeasurement]) -> bool:
        """Return True if all records were measured with the checkpoint that training wrote."""
        sha256 = model.checkpoint_sha256
        return all(record.model.checkpoint_sha256 == sha256 for record in records)

    def _load_records(self, model: TrainedModel) -> list[AnyMeasurement]:
        """Return the records of the model's checkpoint in the results file."""
        if not self.results_path.is_file():
            return []
        return self._select_records(model, load_evaluation(self.results_path))

    def _select_records(
        self, model: TrainedModel, results: EvaluationFile | ProbeFile
    ) -> list[AnyMeasurement]:
        """Return the records of the model's checkpoint. A results file belongs to one run."""
        name = model.checkpoint.name
        return [record for record in results.records if record.model.checkpoint_name == name]

    @property
    def cases(self) -> set[TextCase]:
        """Split, length, and stride of each measurement."""
        return set(self.config.cases())

    def load_results(self, model: TrainedModel) -> EvaluationFile | ProbeFile:
        """Return the results file without the records of other steps.

        The data folder in the records is the current one, because it may have been moved. The name
        of a step with overridden options is the label of its models.
        """
        results = load_evaluation(self.results_path)
        records = []
        for record in self._select_records(model, results):
            if TextCase.of(record) in self.cases:
                options = {**(record.model.options or {}), "data": model.data}
                label = self.name if self.is_variant else None
                records.append(record.with_model(options=options, label=label))
        return results.model_copy(update={"records": records})


class ProbeEvalStep(EvalStep):
    """Evaluation of a probe, with test sequences of the given lengths."""

    def _marker(self, model: TrainedModel) -> CompletionMarker:
        """Return the marker, which depends on the probe's settings instead of a split."""
        path = model.folder / "probed.json"
        flags = [*self.config.override_flags(), *self.flags]
        settings = {"lengths": self.config.lengths, "flags": flags}
        probe = Path(model.data) / PROBE_FILE
        return CompletionMarker(path, settings, [model.checkpoint, probe], [self.results_path])


def _summary(records: Iterable[AnyMeasurement]) -> str:
    """Return the results of an evaluation in one line: ``perplexity 47.23 at 128, 43.98 at 512``.

    The accuracy of a probe is the mean over all depths.
    """
    accuracies: dict[int, list[float]] = defaultdict(list)
    perplexities = []
    for record in records:
        if isinstance(record, ProbeMeasurement):
            accuracies[record.length].append(record.accuracy)
            continue
        assert record.perplexity is not None, "the evaluation measured it"
        stride = "" if record.nonoverlapping else f" (S = {record.stride})"
        text = markdown.perplexity(record.perplexity)
        perplexities.append(f"{text} at {record.length}{stride}")
    if perplexities:
        return f"perplexity {', '.join(perplexities)}"
    means = [f"{mean(values):.0%} at {length}" for length, values in accuracies.items()]
    return f"accuracy {', '.join(means)}"
