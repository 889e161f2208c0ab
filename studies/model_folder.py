"""The folder that keeps the results of one model, after the folder of its run is gone.

:mod:`.study_results` says which files it has, and reads them for the pages.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from alibi_fairseq.completion_marker import check_settings
from alibi_fairseq.errors import UserInputError
from alibi_fairseq.experiment.run import Run
from alibi_fairseq.experiment.schema import Model
from alibi_fairseq.results.case import Case
from alibi_fairseq.results.file import Results, load, load_training, merge, save
from alibi_fairseq.results.file_names import TRAINING_FILE
from alibi_fairseq.results.result import Result
from alibi_fairseq.results.series import Reading, Series
from alibi_fairseq.results.settings import canonical

from .analysis.study_results import EVALUATION_FILE
from .planned_series import planned_series


@dataclass(frozen=True)
class ModelFolder:
    """Folder that keeps the results of a model.

    Attributes:
        model: the model.
        folder: the folder.
    """

    model: Model
    folder: Path

    def holds(self, run: Run) -> bool:
        """Return True if no result of the run is missing."""
        known = self._known()
        if not known:
            return False
        last = known[-1]
        if last.series != _planned_series(run) or last.seed != self.model.seed:
            return False
        if last.status:  # the training diverged
            return True
        if last.updates != run.updates:
            return False
        return all(step.is_measured(known, checkpoint_sha256=None) for step in run.eval_steps)

    def check(self, run: Run) -> None:
        """Refuse results of the same name that were made with other settings.

        Raises:
            UserInputError: a setting of the training, its number of updates, or the text of the
                evaluation, differs.
        """
        known = self._known()
        if not known:
            return
        advice = "Choose another --results, or move that folder away."
        existing = canonical(known[-1].series.settings)
        settings = canonical(_planned_series(run).settings)
        if run.after:  # until then, its learning rate is not known
            for each in (existing, settings):
                each.pop("optimization.lr", None)
        if not known[-1].status:  # a training that diverged ended early
            existing["updates"] = known[-1].updates
            settings["updates"] = run.updates
        check_settings(existing, settings, f"{self.folder} has a model that was trained", advice)
        texts = {case.text for step in run.eval_steps for case in step.sweep().cases}
        for result in known:
            if result.case.kind == "text" and result.case.text not in texts:
                raise UserInputError(
                    f"{self.folder} has a model that was evaluated on another text. {advice}"
                )

    def keep(self, run: Run) -> None:
        """Keep the results of a complete run, or record that it diverged."""
        files_by_name: dict[str, list[Results]] = {}
        for step in () if run.diverged else run.eval_steps:
            file = step.load_results()
            tested_on = step.corpus or self.model.corpus.name
            named = [_on_corpus(result, tested_on) for result in file.results]
            name = f"evaluation-on-{step.corpus}.json" if step.corpus else EVALUATION_FILE
            files_by_name.setdefault(name, []).append(replace(file, results=named))
        for name, files in files_by_name.items():
            save(merge(files), self.folder / name)
        # Last, because it marks the results as complete.
        save(self._read_training(run), self.folder / TRAINING_FILE)

    def _known(self) -> list[Result]:
        """Return the results that are kept, the last validation last; none if unfinished."""
        results: list[Result] = []
        if (self.folder / TRAINING_FILE).is_file():
            for path in sorted(self.folder.glob("*.json")):
                results += load(path).results
        return results

    def _read_training(self, run: Run) -> Results:
        """Return the validations of a training, and whether it diverged."""
        training = Results([])
        if (run.folder / TRAINING_FILE).is_file():
            training = load_training(run.folder)
            assert training.provenance is not None, "the training recorded it"
            # Without this machine's interpreter.
            training.provenance.command = run.training_command().command_line
        results = [_on_corpus(result, self.model.corpus.name) for result in training.results]
        if run.diverged and not any(result.status for result in results):
            length = self.model.train_length
            case = Case("validation", None, "valid", length, length, corpus=self.model.corpus.name)
            series = _planned_series(run)
            end = Result(series, Reading(None), self.model.seed, case, None, status="diverged")
            results.append(end)
        return replace(training, results=results)


def _planned_series(run: Run) -> Series:
    """Return the series that the training will record on one process. Requires the data."""
    return planned_series(run.data, run.flags, run.plugin)


def _on_corpus(result: Result, name: str) -> Result:
    """Return a result whose text has the name that it has in the study."""
    return replace(result, case=replace(result.case, corpus=name))
