"""Training and evaluation of a study's models.

Checkpoints and data stay in the work folder. The results folder keeps the results of each model
(:mod:`.model_folder`). A model of which no result is missing there is not trained again, whatever
machine it was trained on.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from alibi_fairseq.experiment.plan import Plan, model_name, plan_from_folder
from alibi_fairseq.experiment.run import Run
from alibi_fairseq.experiment.runner import Experiment
from alibi_fairseq.experiment.slots import DEFAULT_SLOT, Slot

from .analysis.study_results import MODELS_FOLDER
from .config import StudyConfig, trained_model
from .corpora.preparation import data_folder, is_prepared, prepare_corpora
from .model_folder import ModelFolder


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
            name = trained_model(model).run_name(model.seed)
            if model.corpus.name not in self.texts or not fnmatch.fnmatch(name, self.pattern):
                continue
            kept = ModelFolder(model, self.results / MODELS_FOLDER / name)
            renamed = replace(run, name=name, may_diverge=True)
            runs.append(StudyRun(**vars(renamed), kept=kept))
            models[name] = model
            if model_name(model) in planned.trials:
                trials[model_name(model)] = planned.trials[model_name(model)]
        return Plan(tuple(runs), models, trials)

    def report(self) -> None:
        """Write the page."""
        print(f"\n{self.write_page()}")
