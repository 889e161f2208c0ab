"""Training and evaluation of a study's models.

Checkpoints and data stay in the work folder. The results folder keeps the JSON of finished models
in ``cells/NAME/``, with their settings in ``cell.json``. A model whose settings are found there is
not trained again, whatever machine it was trained on. A model that diverged has only ``cell.json``.
"""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from alibi_fairseq.completion_marker import check_settings, read_json_if_present
from alibi_fairseq.experiment.plan import Plan, model_name, plan_from_folder
from alibi_fairseq.experiment.run import Run
from alibi_fairseq.experiment.runner import Experiment
from alibi_fairseq.experiment.schema import Model
from alibi_fairseq.experiment.training_flags import flags_for_weights
from alibi_fairseq.files import atomic_write, sha256_if_present
from alibi_fairseq.results.file import Results, load_training, merge, save
from alibi_fairseq.results.files import TRAINING_FILE
from alibi_fairseq.results.result import Result

from .config import StudyConfig, StudyCorpus, run_name
from .corpus_preparation import data_folder, is_prepared, prepare_corpora
from .losses import MODEL_FILE

EVALUATION_FILE = "evaluation.json"


@dataclass(frozen=True)
class ModelArchive:
    """Folder that keeps the results of a model, or a record that its training diverged.

    Attributes:
        model: the model.
        folder: the folder.
    """

    model: Model
    folder: Path

    def holds(self) -> bool:
        """Return True if the results, or the record of divergence, exist."""
        return read_json_if_present(self.folder / MODEL_FILE) is not None

    def check(self, run: Run) -> None:
        """Reject results of the same name that were made with other settings.

        Raises:
            UserInputError: a setting differs. Hashes are not compared before the data exists.
        """
        existing = read_json_if_present(self.folder / MODEL_FILE)
        if existing is None:
            return
        wanted = self.settings(run)
        if None in wanted["data"].values():
            wanted["data"] = existing["settings"]["data"]
        advice = "Choose another --results, or move that folder away."
        check_settings(
            existing["settings"], wanted, f"{self.folder} has a model that was made", advice
        )

    def settings(self, run: Run) -> dict:
        """Return the settings that determine the results.

        A tuned learning rate is given by its grid. Hashes of data are None before the data exists.
        """
        group = self.model.group
        rates = ",".join(map(str, group.lr))
        if len(group.lr) > 1:
            rates += f" for {group.tune_share}"
        data = {"train.bin": run.settings["train"], "dict.txt": run.settings["dictionary"]}
        evaluations = []
        for step in run.eval_steps:
            for subset in step.config.subsets:
                file = Path(step.data_of(run.model_of(step))) / f"{subset}.bin"
                name = f"{step.name} {file.name}" if step.corpus else file.name
                data[name] = sha256_if_present(file)
            cases = sorted(step.cases)
            evaluations.append({"name": step.name, "points": cases, **step.settings})
        settings = {
            "options": flags_for_weights(self.model, rates, group.updates),
            "evaluations": evaluations,
            "data": data,
        }
        if "plugin" in run.settings:
            settings["plugin"] = run.settings["plugin"]
        return settings

    def keep(self, run: Run) -> None:
        """Keep the results of a complete run, or record that it diverged."""
        if run.diverged:
            self._write_description(run, diverged=True)
            return
        files_by_name: dict[str, list[Results]] = {}
        for step in run.eval_steps:
            file = step.load_results(run.model_of(step))
            tested_on = step.corpus or self.model.corpus.name
            named = [on_corpus(result, tested_on) for result in file.results]
            name = f"evaluation-on-{step.corpus}.json" if step.corpus else EVALUATION_FILE
            files_by_name.setdefault(name, []).append(replace(file, results=named))
        for name, files in files_by_name.items():
            save(merge(files), self.folder / name)
        training = load_training(run.folder)
        assert training.provenance is not None, "the training recorded it"
        # Without this machine's interpreter.
        training.provenance.command = run.training_command().command_line
        save(training, self.folder / TRAINING_FILE)
        self._write_description(run)  # last, because it marks the results as complete

    def _write_description(self, run: Run, **facts: bool) -> None:
        """Write the settings of the model and further facts."""
        choice = run.choice.as_json() if run.choice else None
        description = {"name": run.name, "settings": self.settings(run), "tuning": choice, **facts}
        with atomic_write(self.folder / MODEL_FILE) as stream:
            json.dump(description, stream, indent=1)
            stream.write("\n")


def on_corpus(result: Result, name: str) -> Result:
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

    @cached_property
    def data(self) -> dict[str, Path]:
        """Folder of the binary data of each corpus whose text is given."""
        folders = {}
        for name, text in self.texts.items():
            folders[name] = data_folder(name, text, self.folder)
        return folders

    @property
    def corpora(self) -> list[StudyCorpus]:
        """The corpora whose text is given."""
        return [corpus for corpus in self.config.corpora if corpus.name in self.texts]

    @property
    def prepared(self) -> bool:
        return all(is_prepared(corpus, self.data[corpus.name]) for corpus in self.corpora)

    def prepare(self) -> None:
        """Prepare the data, and reject existing results with other settings."""
        entries = self.config.shared_vocabulary
        prepare_corpora(self.config.corpora, self.texts, entries, self.folder)
        # Also of models that the pattern leaves out, because the page compares all models.
        for run in replace(self, pattern="*").plan().runs:
            assert isinstance(run.archive, ModelArchive)
            run.archive.check(run)

    def plan(self) -> Plan:
        """Return the runs whose text is given and whose name matches.

        A training that diverges is reported and not replaced.
        """
        config = self.config.with_data(self.data)
        planned = plan_from_folder(config, self.folder, self.results / "tuning")
        runs = []
        trials = {}
        for model, run in zip(config.all_models(), planned.runs, strict=True):
            name = run_name(model)
            if model.corpus.name not in self.texts or not fnmatch.fnmatch(name, self.pattern):
                continue
            archive = ModelArchive(model, self.results / "cells" / name)
            runs.append(replace(run, name=name, may_diverge=True, archive=archive))
            if model_name(model) in planned.trials:
                trials[model_name(model)] = planned.trials[model_name(model)]
        return Plan(tuple(runs), trials)

    def report(self) -> None:
        """Write the page."""
        print(f"\n{self.write_page()}")
