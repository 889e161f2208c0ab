"""Training and evaluation of a study's models.

Checkpoints and data stay in the work folder. The results folder keeps the JSON of finished models
in ``cells/NAME/``, with their settings in ``cell.json``. A model whose settings are found there is
not trained again, whatever machine it was trained on. A model that diverged has only ``cell.json``.
"""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from alibi_fairseq.completion_marker import check_settings, read_json_if_present
from alibi_fairseq.experiment.comparison_runs import ComparisonRun, list_runs
from alibi_fairseq.experiment.eval_step import EvalStep, TrainedModel
from alibi_fairseq.experiment.execution import DEFAULT_SLOT, Slot
from alibi_fairseq.experiment.runner import Experiment
from alibi_fairseq.experiment.tuning import TunedRun
from alibi_fairseq.files import atomic_write, sha256_if_present
from alibi_fairseq.results.files import (
    TRAINING_FILE,
    load_training,
    merge_results_files,
    save_results_file,
)
from alibi_fairseq.results.results_file import ResultsFile

from .config import StudyConfig, StudyCorpus, StudyPart, run_name
from .corpus_preparation import data_folder, is_prepared, prepare_corpora
from .losses import MODEL_FILE

EVALUATION_FILE = "evaluation.json"


@dataclass(frozen=True)
class OtherCorpusStep(EvalStep):
    """Evaluation on another corpus than that of the training.

    Attributes:
        corpus: name of the corpus.
        data: folder of its binary data.
    """

    corpus: str = ""
    data: str = ""

    @property
    def is_variant(self) -> bool:
        """False, because the model is evaluated as trained."""
        return False

    def data_of(self, model: TrainedModel) -> str:
        """Return the folder of the binary data."""
        return self.data


def steps_on_other_corpora(part: StudyPart, model: ComparisonRun) -> list[OtherCorpusStep]:
    """Return the evaluations of a model on the corpora of ``also_on``, in the same windows."""
    as_trained = model.run.eval_steps[0]
    steps = []
    for corpus in part.corpora:
        if corpus.name in part.also_on and corpus.name != model.spec.corpus:
            path = as_trained.results_path.with_name(f"results-on-{corpus.name}.json")
            steps.append(
                OtherCorpusStep(
                    results_path=path,
                    config=as_trained.config,
                    flags=as_trained.flags,
                    name=f"on {corpus.name}",
                    corpus=corpus.name,
                    data=str(corpus.data),
                )
            )
    return steps


@dataclass(frozen=True, kw_only=True)
class StudyRun(TunedRun):
    """Run that is complete once its results exist, or a record that its training diverged.

    Attributes:
        part: the comparison that the run belongs to.
        corpus: name of the corpus it is trained on.
        results_folder: folder of its results.
    """

    part: StudyPart
    corpus: str
    results_folder: Path

    @classmethod
    def of_comparison(
        cls, name: str, part: StudyPart, model: ComparisonRun, results_folder: Path
    ) -> StudyRun:
        """Return the run of a comparison's model under the study's name.

        A training that diverges is reported and not replaced. The fields of :class:`.Run` that no
        comparison sets keep their defaults.
        """
        run = model.run
        return cls(
            name=name,
            folder=run.folder,
            data=run.data,
            flags=run.flags,
            settings=run.settings,
            updates=run.updates,
            tokens=run.tokens,
            trials=run.trials,
            eval_steps=(*run.eval_steps, *steps_on_other_corpora(part, model)),
            may_diverge=True,
            part=part,
            corpus=model.spec.corpus,
            tuning=run.tuning,
            results_folder=results_folder,
        )

    @property
    def result_settings(self) -> dict:
        """Settings that determine the results.

        A tuned learning rate is given by its grid. Hashes of data are None before the data exists.
        """
        options = list(self.settings["options"])
        if len(self.part.lr) > 1:
            rates = ",".join(map(str, self.part.lr))
            options[options.index("--lr") + 1] = f"{rates} for {self.part.tune_share}"
        data = {"train.bin": self.settings["train"], "dict.txt": self.settings["dictionary"]}
        evaluations = []
        for step in self.eval_steps:
            for subset in step.config.subsets:
                file = Path(step.data_of(self.model_of(step))) / f"{subset}.bin"
                in_other_corpus = isinstance(step, OtherCorpusStep)
                name = f"{step.name} {file.name}" if in_other_corpus else file.name
                data[name] = sha256_if_present(file)
            cases = sorted(step.cases)
            evaluations.append({"name": step.name, "points": cases, **step.settings})
        settings = {"options": options, "evaluations": evaluations, "data": data}
        if "plugin" in self.settings:
            settings["plugin"] = self.settings["plugin"]
        return settings

    @property
    def is_complete(self) -> bool:
        """True if the results, or the record of divergence, exist."""
        return read_json_if_present(self.results_folder / MODEL_FILE) is not None

    def check_existing_results(self) -> None:
        """Reject results of the same name that were made with other settings.

        Raises:
            UserInputError: a setting differs. Hashes are not compared before the data exists.
        """
        existing = read_json_if_present(self.results_folder / MODEL_FILE)
        if existing is None:
            return
        wanted = self.result_settings
        if None in wanted["data"].values():
            wanted["data"] = existing["settings"]["data"]
        advice = "choose another --results or move that folder away"
        work = f"{self.results_folder} holds a model that was made"
        check_settings(existing["settings"], wanted, work, advice)

    def evaluate(self, slot: Slot = DEFAULT_SLOT) -> None:
        """Run the evaluations that are missing, and keep the results.

        A model that diverged is not evaluated. This is recorded instead.
        """
        if self.is_complete:
            self.check_existing_results()
            return
        if self.diverged:
            self._write_description(diverged=True)
            return
        super().evaluate(slot)
        command = self.training_command(self.updates).command_line
        results_by_file: dict[str, list[ResultsFile]] = {}
        for step in self.eval_steps:
            other_corpus = step.corpus if isinstance(step, OtherCorpusStep) else ""
            tested_on = other_corpus or self.corpus
            results = step.load_results(self.model_of(step))
            named = {"corpus": tested_on}
            records = [record.model_copy(update=named) for record in results.records]
            name = f"evaluation-on-{other_corpus}.json" if other_corpus else EVALUATION_FILE
            results_by_file.setdefault(name, []).append(
                results.model_copy(update={"records": records})
            )
        for name, parts in results_by_file.items():
            save_results_file(merge_results_files(parts), self.results_folder / name)
        training = load_training(self.folder)
        training.provenance.command = command  # without this machine's interpreter
        save_results_file(training, self.results_folder / TRAINING_FILE)
        self._write_description()  # last, because it marks the results as complete

    def _write_description(self, **facts: bool) -> None:
        """Write the settings of the model and further facts."""
        outcome = self.tuning.outcome if self.tuning else None
        settings = self.result_settings
        description = {"name": self.name, "settings": settings, "tuning": outcome, **facts}
        with atomic_write(self.results_folder / MODEL_FILE) as stream:
            json.dump(description, stream, indent=1)
            stream.write("\n")


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
    report_if_incomplete = True

    @cached_property
    def data(self) -> dict[str, Path]:
        """Folder of the binary data of each corpus whose text is given."""
        folders = {}
        for name, text in self.texts.items():
            folders[name] = data_folder(name, text, self.folder)
        return folders

    @cached_property
    def parts(self) -> tuple[StudyPart, ...]:
        return self.config.comparisons(self.data)

    @property
    def corpora(self) -> list[StudyCorpus]:
        """The corpora whose text is given."""
        return [corpus for corpus in self.config.corpora if corpus.name in self.texts]

    @property
    def prepared(self) -> bool:
        return all(is_prepared(corpus, self.data[corpus.name]) for corpus in self.corpora)

    def prepare(self) -> None:
        """Prepare the data, and reject existing results with other settings."""
        entries = self.parts[0].shared_vocabulary
        prepare_corpora(self.config.corpora, self.texts, entries, self.folder)
        # Also of models that the pattern leaves out, because the page compares all models.
        for run in self._runs_of_corpora:
            run.check_existing_results()

    @property
    def runs(self) -> list[StudyRun]:
        """The models whose text is given and whose name matches, in the order of training."""
        return [run for run in self._runs_of_corpora if fnmatch.fnmatch(run.name, self.pattern)]

    @property
    def _runs_of_corpora(self) -> list[StudyRun]:
        """The models whose text is given, in the order of training."""
        runs: dict[str, StudyRun] = {}
        for part in self.parts:
            for model in list_runs(part, self.folder, self.results / "tuning"):
                name = run_name(model.spec)
                if model.spec.corpus in self.texts and name not in runs:
                    results_folder = self.results / "cells" / name
                    runs[name] = StudyRun.of_comparison(name, part, model, results_folder)
        return list(runs.values())

    def report(self) -> None:
        """Write the page."""
        print(f"\n{self.write_page()}")
