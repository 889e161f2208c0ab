"""Training and evaluation of a study's models.

Checkpoints and data stay in the work folder. The results folder keeps the results of each model
(:mod:`.study_results`). A model of which no result is missing there is not trained again, whatever
machine it was trained on.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path

from alibi_fairseq.completion_marker import check_settings
from alibi_fairseq.errors import UserInputError
from alibi_fairseq.evaluation.weights_identity import WeightsIdentity
from alibi_fairseq.experiment.plan import Plan, model_name, plan_from_folder
from alibi_fairseq.experiment.run import Run
from alibi_fairseq.experiment.runner import Experiment
from alibi_fairseq.experiment.schema import Model
from alibi_fairseq.experiment.slots import DEFAULT_SLOT, Slot
from alibi_fairseq.results.case import Case
from alibi_fairseq.results.file import Results, load, load_training, merge, save
from alibi_fairseq.results.file_names import TRAINING_FILE
from alibi_fairseq.results.result import Result, Wanted, missing
from alibi_fairseq.results.series import Reading
from alibi_fairseq.results.settings import canonical

from .analysis.study_results import EVALUATION_FILE, MODELS_FOLDER
from .config import StudyConfig, run_name
from .corpora.preparation import data_folder, is_prepared, prepare_corpora


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
        return bool(known) and not missing(self._wanted(run), known)

    def check(self, run: Run) -> None:
        """Refuse results of the same name that were made with other settings.

        Raises:
            UserInputError: a setting of the training, or the text of the evaluation, differs.
        """
        known = self._known()
        if not known:
            return
        advice = "Choose another --results, or move that folder away."
        existing = canonical(known[-1].series.settings)
        settings = canonical(run.planned_series().settings)
        if run.after:  # until then, its learning rate is not known
            for each in (existing, settings):
                each.pop("optimization.lr", None)
        check_settings(existing, settings, f"{self.folder} has a model that was trained", advice)
        texts = {want.case.text for want in self._wanted(run)}
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
        """Return the results that are kept; none of an unfinished model."""
        results: list[Result] = []
        if (self.folder / TRAINING_FILE).is_file():
            for path in sorted(self.folder.glob("*.json")):
                results += load(path).results
        return results

    def _wanted(self, run: Run) -> list[Wanted]:
        """Return the results that the run should have."""
        weights = WeightsIdentity(run.planned_series(), self.model.seed, run.updates)
        wanted: list[Wanted] = []
        for step in run.eval_steps:
            wanted += step.wanted(weights)
        return wanted

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
            series = run.planned_series()
            end = Result(series, Reading(None), self.model.seed, case, None, status="diverged")
            results.append(end)
        return replace(training, results=results)


@dataclass(frozen=True, kw_only=True)
class StudyRun(Run):
    """Run whose results are kept after its own folder is gone.

    A training that diverges is reported and not replaced.

    Attributes:
        kept: folder that keeps the results.
    """

    kept: ModelFolder

    @property
    def is_complete(self) -> bool:
        """True if all results, or a record that the training diverged, are kept."""
        return self.has_rate and self.kept.holds(self)

    def check_start(self) -> None:
        """Raise UserInputError unless the training can start, or resume."""
        self.kept.check(self)
        super().check_start()

    def evaluate(self, slot: Slot = DEFAULT_SLOT) -> None:
        """Execute the evaluation steps that are not complete, and keep all results."""
        if not self.kept.holds(self):
            super().evaluate(slot)
            self.kept.keep(self)


def _on_corpus(result: Result, name: str) -> Result:
    """Return a result whose text has the name that it has in the study."""
    return replace(result, case=replace(result.case, corpus=name))


@dataclass(frozen=True)
class Study(Experiment):
    """The models of a study's YAML file.

    Attributes:
        texts: path of the text of each corpus.
        folder: data and checkpoints.
        results: JSON of finished models.
        write_page: writes the page of the results and returns its path.
        pattern: glob pattern of models to train.
    """

    config: StudyConfig
    texts: Mapping[str, Path]
    folder: Path
    results: Path
    write_page: Callable[[], Path]
    pattern: str = "*"

    folder_option = "--work-dir"
    threads = 1

    @property
    def data(self) -> dict[str, Path]:
        """Folder of the binary data of each corpus whose text is given."""
        return {name: data_folder(name, text, self.folder) for name, text in self.texts.items()}

    @property
    def prepared(self) -> bool:
        for corpus in self.config.corpora:
            if corpus.name in self.data and not is_prepared(corpus, self.data[corpus.name]):
                return False
        return True

    def prepare(self) -> None:
        """Prepare the data, and reject existing results with other settings."""
        entries = self.config.shared_vocabulary
        prepare_corpora(self.config.corpora, self.texts, entries, self.folder)
        # Also of models that the pattern leaves out, because the page compares all models.
        for run in replace(self, pattern="*").plan().runs:
            assert isinstance(run, StudyRun)
            run.kept.check(run)

    def plan(self) -> Plan:
        """Return the runs whose text is given and whose name matches."""
        config = self.config.with_data(self.data)
        planned = plan_from_folder(config, self.folder, self.results / "tuning")
        runs = []
        models = {}
        trials = {}
        for run in planned.runs:
            model = planned.models[run.name]
            name = run_name(model)
            if model.corpus.name not in self.texts or not fnmatch.fnmatch(name, self.pattern):
                continue
            kept = ModelFolder(model, self.results / MODELS_FOLDER / name)
            planned_run = {field.name: getattr(run, field.name) for field in fields(Run)}
            planned_run.update(name=name, may_diverge=True)
            runs.append(StudyRun(**planned_run, kept=kept))
            models[name] = model
            if model_name(model) in planned.trials:
                trials[model_name(model)] = planned.trials[model_name(model)]
        return Plan(tuple(runs), models, trials)

    def report(self) -> None:
        """Write the page."""
        print(f"\n{self.write_page()}")
