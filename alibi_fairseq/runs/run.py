"""Run: one model, trained and then evaluated.

An experiment lists runs, and :mod:`.runner` executes them. The folder of a run contains:

- checkpoints and logs
- ``settings.json``, written before the first update, with the settings that determine the weights
- a completion marker for each update count that training has reached
- a completion marker for each finished evaluation step

Completed steps are not repeated.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean

from tqdm import tqdm

from ..data.probe_data import PROBE_FILE
from ..errors import UserInputError
from ..evaluation.config import SweepConfig, TextCase
from ..evaluation.option_types import format_stride
from ..reporting import markdown
from ..results.completion import (
    CompletionMarker,
    check_settings,
    read_json_if_present,
    write_settings,
)
from ..results.data_hashes import data_folders
from ..results.files import load_results_file
from ..results.record import AnyMeasurement, ProbeMeasurement
from ..results.results_file import EvaluationFile, ProbeFile
from .child_process import ALIBI, ChildProcess, CommandFailedError
from .execution import DEFAULT_SLOT, Slot
from .torchrun import BAD_INPUT

#: Error by which fairseq ends a training whose loss or gradients are not finite.
DIVERGENCE = "FloatingPointError"


@dataclass(frozen=True)
class Run:
    """Model to train and evaluate.

    Attributes:
        name: unique name within the experiment.
        folder: folder for checkpoints and logs.
        data: fairseq's data argument: a folder, or several joined by ``:``.
        flags: options of ``fairseq-train``.
        settings: JSON values that determine the weights. Unlike the flags, they do not describe the
            machine.
        updates: number of updates of the whole training.
        tokens: number of tokens of the whole training.
        trials: runs that must be complete before this one, such as learning-rate trials.
        eval_steps: evaluation steps, in order.
        checkpoint_updates: earlier update counts at which a checkpoint is kept.
        final_checkpoint: name of the checkpoint that is evaluated at the end.
        launcher: interpreter arguments in front of the training command, such as those of torchrun.
        may_diverge: True if divergence completes the run, which is then not evaluated. This is the
            case for learning-rate trials. Otherwise divergence is a failure.
    """

    name: str
    folder: Path
    data: str
    flags: tuple[str, ...]
    settings: dict
    updates: int
    tokens: int
    trials: tuple[Run, ...] = field(default=(), repr=False)
    eval_steps: tuple[EvalStep, ...] = ()
    checkpoint_updates: tuple[int, ...] = ()
    final_checkpoint: str = "checkpoint_last.pt"
    launcher: tuple[str, ...] = field(default=(), repr=False)
    may_diverge: bool = False

    def commands(self) -> list[ChildProcess]:
        """Return the commands that train and evaluate the model, in order."""
        commands = [self.training_command(updates) for updates in self._update_counts]
        for step in self.eval_steps:
            commands.append(step.command(self))
        return commands

    def training_command(self, updates: int | None = None) -> ChildProcess:
        """Build the command that trains, or resumes, up to a number of updates (default: all)."""
        python, *module = ALIBI
        argv = [python, *self.launcher, *module, "train", self.data, *self.flags]
        argv += ["--save-dir", str(self.folder)]
        if updates is None:
            updates = self.updates
        if updates != self.updates:
            argv += ["--max-update", str(updates)]
        return ChildProcess(f"training {self.name}", argv, self.folder / "train.log", updates)

    def checkpoint_path(self, updates: int | None = None) -> Path:
        """Return the path of the checkpoint after a number of updates (default: all)."""
        if updates is None:
            updates = self.updates
        if updates == self.updates:
            return self.folder / self.final_checkpoint
        return self.folder / f"checkpoint_{updates}.pt"

    def training_marker(self, updates: int | None = None) -> CompletionMarker:
        """Return the marker of the training up to a number of updates (default: all)."""
        if updates is None:
            updates = self.updates
        path = self.folder / f"trained-{updates}.json"
        return CompletionMarker(path, self.settings, outputs=[self.checkpoint_path(updates)])

    @property
    def diverged(self) -> bool:
        """True if the run may diverge and did."""
        return self.may_diverge and self._divergence_marker.holds()

    @property
    def is_done(self) -> bool:
        """True if the run and its trials are complete. Requires prepared data."""
        if self.diverged:
            return True
        # Until its trials are complete, the learning rate of the run is not known.
        if unfinished_trials([self]):
            return False
        if self._missing_update_counts():
            return False
        return all(step.is_complete(self) for step in self.eval_steps)

    def execute(self, slot: Slot = DEFAULT_SLOT) -> None:
        """Train the model, then evaluate it. Completed steps are skipped.

        Raises:
            Stopped, CommandFailedError: as :meth:`.ChildProcess.run`.
        """
        self.train(slot)
        self.evaluate(slot)

    def train(self, slot: Slot = DEFAULT_SLOT) -> None:
        """Train to each update count that has not been reached.

        Raises:
            Stopped, CommandFailedError: as :meth:`.ChildProcess.run`, or an option of
                ``fairseq-train`` ended the training early.
            UserInputError: a trial is unfinished, or the folder holds another training.
        """
        if self.diverged:
            return
        for updates in self._missing_update_counts():
            self._check_trials()
            self._check_folder(updates)
            write_settings(self._settings_file, self.settings)
            # A run killed between its last update and its marker needs no new process.
            if read_update_count(self.folder) < updates:
                try:
                    self.training_command(updates).run(slot)
                except CommandFailedError as failure:
                    if not self.may_diverge or DIVERGENCE not in str(failure):
                        raise
                    self._divergence_marker.write()
                    return
                self._check_update_count(updates)
            self._record_training(updates)

    def evaluate(self, slot: Slot = DEFAULT_SLOT) -> None:
        """Execute the evaluation steps that are not complete.

        Raises:
            Stopped, CommandFailedError: as :meth:`.ChildProcess.run`.
        """
        self._delete_outdated_results()
        for step in self.eval_steps:
            if not step.is_complete(self):
                step.execute(self, slot)

    def _delete_outdated_results(self) -> None:
        """Delete each results file that has outdated results of a step.

        All steps that share the file are then repeated. None of them may delete it later, when it
        has new results of another step.
        """
        outdated_files = {step.results_path for step in self.eval_steps if step.is_outdated(self)}
        for step in self.eval_steps:
            if step.results_path in outdated_files:
                step.delete_results(self)

    @property
    def _update_counts(self) -> tuple[int, ...]:
        """Update counts at which a checkpoint is kept. The last one ends the training."""
        return (*self.checkpoint_updates, self.updates)

    def _missing_update_counts(self) -> list[int]:
        """Return the update counts that the run has not reached."""
        return [count for count in self._update_counts if not self.training_marker(count).holds()]

    @property
    def _divergence_marker(self) -> CompletionMarker:
        return CompletionMarker(self.folder / "diverged.json", self.settings)

    @property
    def _settings_file(self) -> Path:
        return self.folder / "settings.json"

    def check_settings(self) -> None:
        """Raise UserInputError if the folder holds a training with other settings."""
        settings = read_json_if_present(self._settings_file)
        advice = "choose another folder, or move that one away"
        check_settings(settings, self.settings, f"{self.folder} holds a training", advice)

    def _check_trials(self) -> None:
        """Check that all trials are complete."""
        unfinished = unfinished_trials([self])
        if unfinished:
            raise UserInputError(
                f"{self.name}: trial {unfinished[0].name} is unfinished. Run it first."
            )

    def _check_folder(self, updates: int) -> None:
        """Check that training to ``updates`` can start, or resume, in the folder."""
        self.check_settings()
        has_settings = self._settings_file.is_file()
        if not has_settings and any(self.folder.glob("checkpoint*.pt")):
            problem = "it holds checkpoints of another training"
        elif self.training_marker(updates).path.is_file():
            checkpoint = self.checkpoint_path(updates).name
            problem = f"{checkpoint} is missing or was changed after the training"
        elif read_update_count(self.folder) > updates:
            problem = f"its last checkpoint is past {updates:,} updates, and none was kept there"
        else:
            return
        raise UserInputError(f"{self.folder}: {problem}. Move that folder away to train again.")

    def _check_update_count(self, updates: int) -> None:
        """Check that a training command that exited with 0 has reached ``updates``.

        Raises:
            CommandFailedError: it has not, for example because of ``--patience`` or
                ``--max-epoch``.
        """
        reached = read_update_count(self.folder)
        if reached < updates:
            raise CommandFailedError(
                f"training {self.name} ended after {reached:,} of {updates:,} updates. "
                "Remove the option that stops a training early, such as --patience.",
                BAD_INPUT,
            )

    def _record_training(self, updates: int) -> None:
        """Write the marker of an update count, after copying a checkpoint named after the count."""
        checkpoint = self.checkpoint_path(updates)
        if checkpoint.name == f"checkpoint_{updates}.pt":
            unfinished = checkpoint.with_suffix(".unfinished")
            shutil.copyfile(self.folder / "checkpoint_last.pt", unfinished)
            os.replace(unfinished, checkpoint)
        self.training_marker(updates).write()


@dataclass(frozen=True)
class EvalStep:
    """Evaluation sweep of a run's model: one ``alibi-fairseq eval``.

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

    def data_of(self, run: Run) -> str:
        """Return fairseq's data argument of the text to evaluate a run on."""
        return run.data

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

    def command(self, run: Run) -> ChildProcess:
        """Build the command that evaluates a run."""
        checkpoint = run.checkpoint_path(self.updates)
        argv = [*ALIBI, "eval", self.data_of(run), "--path", str(checkpoint)]
        argv += [*self.config.flags(), "--out", str(self.results_path), *self.flags]
        title = f"evaluating {run.name}"
        if self.name:
            title += f" {self.name}"
        return ChildProcess(title, argv, run.folder / "evaluate.log")

    def is_complete(self, run: Run) -> bool:
        """Return True if all results exist and belong to the run's checkpoint and data."""
        records = self._records(run)
        if not self._match_checkpoint(run, records) or not self._marker(run).holds():
            return False
        measured = {case_of(record) for record in records}
        return measured.issuperset(self.cases)

    def is_outdated(self, run: Run) -> bool:
        """Return True if the results have other settings, other data, or another checkpoint."""
        marker = self._marker(run)
        if marker.path.is_file() and not marker.holds():
            return True
        records = self._records(run)
        splits = {case_of(record).subset for record in records}
        if not splits.issubset(self.config.subsets):
            return True
        if not all(self.config.applies_to(record) for record in records):
            return True
        return not self._match_checkpoint(run, records)

    def delete_results(self, run: Run) -> None:
        """Delete the results file, and the marker that the step is complete."""
        self._marker(run).path.unlink(missing_ok=True)
        self.results_path.unlink(missing_ok=True)

    def execute(self, run: Run, slot: Slot) -> None:
        """Evaluate a run.

        Raises:
            Stopped, CommandFailedError: as :meth:`.ChildProcess.run`.
        """
        self.command(run).run(slot)
        self._marker(run).write()
        records = [record for record in self._records(run) if case_of(record) in self.cases]
        tqdm.write(f"{run.name}: {summary(records)}", file=sys.stdout)

    def _marker(self, run: Run) -> CompletionMarker:
        """Return the marker that the step is complete for a run's checkpoint and data."""
        checkpoint = run.checkpoint_path(self.updates)
        splits = ",".join(self.config.subsets)
        strides = ",".join(map(format_stride, self.config.strides))
        name_parts = ["evaluated", checkpoint.stem, splits, strides]
        if self.name:
            name_parts.append(self.name)
        sources = [checkpoint]
        for folder in data_folders(self.data_of(run)):
            for subset in self.config.subsets:
                data_file = Path(folder) / f"{subset}.bin"
                if data_file.is_file():
                    sources.append(data_file)
        path = run.folder / f"{'-'.join(name_parts)}.json"
        return CompletionMarker(path, self.settings, sources)

    def _match_checkpoint(self, run: Run, records: list[AnyMeasurement]) -> bool:
        """Return True if all records were measured with the checkpoint that the run wrote."""
        sha256 = run.training_marker(self.updates).output_sha256
        return all(record.model.checkpoint_sha256 == sha256 for record in records)

    def _records(self, run: Run) -> list[AnyMeasurement]:
        """Return the records in the results file that name the run's checkpoint."""
        if not self.results_path.is_file():
            return []
        return self._records_of(run, load_evaluation(self.results_path))

    def _records_of(self, run: Run, results: EvaluationFile | ProbeFile) -> list[AnyMeasurement]:
        """Return the records that name the run's checkpoint. A results file belongs to one run."""
        name = run.checkpoint_path(self.updates).name
        return [record for record in results.records if record.model.checkpoint_name == name]

    @property
    def cases(self) -> set[TextCase]:
        """Split, length, and stride of each measurement."""
        return set(self.config.cases())

    def load_results(self, run: Run) -> EvaluationFile | ProbeFile:
        """Return the results file without the records of other steps.

        The records have the present data folder of the run, which may have been moved. The records
        of a step with overridden options are labeled with its name.
        """
        results = load_evaluation(self.results_path)
        records = []
        for record in self._records_of(run, results):
            if case_of(record) in self.cases:
                options = {**(record.model.options or {}), "data": run.data}
                label = self.name if self.is_variant else None
                records.append(record.with_model(options=options, label=label))
        return results.model_copy(update={"records": records})


class ProbeEvalStep(EvalStep):
    """Evaluation of a probe, with test sequences of the given lengths."""

    def _marker(self, run: Run) -> CompletionMarker:
        """Return the marker, which depends on the probe's settings instead of a split."""
        flags = (*self.config.override_flags(), *self.flags)
        settings = {"lengths": self.config.lengths, "flags": flags}
        sources = [run.checkpoint_path(self.updates), Path(run.data) / PROBE_FILE]
        return CompletionMarker(run.folder / "probed.json", settings, sources, [self.results_path])


def load_evaluation(path: Path) -> EvaluationFile | ProbeFile:
    """Read the results file of an evaluation step."""
    results = load_results_file(path)
    assert isinstance(results, (EvaluationFile, ProbeFile)), "evaluation steps write no others"
    return results


def case_of(record: AnyMeasurement) -> TextCase:
    """Return split, length, and stride of a record. Probes have no split or stride."""
    if isinstance(record, ProbeMeasurement):
        return TextCase("valid", record.length, record.length)
    return TextCase(record.subset, record.length, record.stride)


def summary(records: Iterable[AnyMeasurement]) -> str:
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


def all_trials(runs: Iterable[Run]) -> list[Run]:
    """Return the trials of these runs, each once."""
    trials: dict[str, Run] = {}
    for run in runs:
        for trial in run.trials:
            trials[trial.name] = trial
    return list(trials.values())


def unfinished_trials(runs: Iterable[Run]) -> list[Run]:
    """Return the unfinished trials of these runs, each once."""
    return [trial for trial in all_trials(runs) if not trial.is_done]


def read_update_count(save_dir: Path) -> int:
    """Return the number of updates of the last checkpoint; 0 without one."""
    path = save_dir / "checkpoint_last.pt"
    if not path.is_file():
        return 0
    from ..checkpoints.loading import updates_of

    return updates_of(path)
