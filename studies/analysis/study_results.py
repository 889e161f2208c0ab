"""Results of a study: its finished models, and the outcomes of its learning-rate trials.

The results of a model are in ``cells/CORPUS-METHOD-LENGTH-seedN/``. ``evaluation.json`` has its
losses on the test split of its corpus, and ``evaluation-on-CORPUS.json`` those on another one.
``training.json`` is written last. It is the only file of a model whose training diverged.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from alibi_fairseq.errors import UserInputError
from alibi_fairseq.results.file import Results, load
from alibi_fairseq.results.file_names import TRAINING_FILE, TRIALS_ENDING
from alibi_fairseq.results.provenance import Provenance
from alibi_fairseq.results.result import Result

from .compared_models import ComparedModels
from .evaluation_key import TrainedModel, method_notation
from .losses import Losses, Measurement, join_losses

#: Folder with a folder for each model. Its name is from an earlier version of the studies.
MODELS_FOLDER = "cells"
EVALUATION_FILE = "evaluation.json"


@dataclass(frozen=True)
class FinishedModel:
    """Results of a model whose training and evaluations are finished.

    Attributes:
        folder: its folder.
        training: validations during its training.
        evaluations: results on the test splits, by file.
    """

    folder: Path
    training: Results
    evaluations: Mapping[Path, Results]

    @property
    def own_results(self) -> list[Result]:
        """Results on the corpus that it was trained on."""
        return list(self.evaluations[self.folder / EVALUATION_FILE].results)

    @property
    def model(self) -> TrainedModel:
        """What the seeds share."""
        first = self.own_results[0]
        method = method_notation(first.series.method)
        return TrainedModel(first.case.corpus, method, first.series.train_length)

    @property
    def last_validation(self) -> Result:
        """Last validation, which has the size of the model and the cost of its training."""
        return self.training.results[-1]

    @property
    def hours(self) -> float:
        """Duration of the training over all sessions."""
        return (self.last_validation.cost.seconds or 0.0) / 3600

    @property
    def provenance(self) -> Provenance:
        """Code, machine, and time of the training."""
        assert self.training.provenance is not None, "a training records it"
        return self.training.provenance

    def measurements(self) -> Iterator[Measurement]:
        """Yield all evaluations."""
        for path, file in self.evaluations.items():
            for result in file.results:
                yield Measurement(self.model, path, result)


@dataclass(frozen=True)
class StudyResults:
    """Results of a study, read once.

    Attributes:
        folder: folder of the results.
        models: finished models, in order of name.
        diverged: names of the models whose training diverged, in order.
    """

    folder: Path
    models: tuple[FinishedModel, ...]
    diverged: tuple[str, ...]

    @classmethod
    def load(cls, folder: Path) -> StudyResults:
        """Read the results in a folder.

        Unfinished models are left out, and so are folders that were renamed to keep them aside.
        """
        models = []
        diverged = []
        for path in sorted(folder.glob(f"{MODELS_FOLDER}/*/{TRAINING_FILE}")):
            training = load(path)
            if any(result.status == "diverged" for result in training.results):
                diverged.append(path.parent.name)
            elif (path.parent / EVALUATION_FILE).is_file():
                files = sorted(path.parent.glob("evaluation*.json"))
                evaluations = {file: load(file) for file in files}
                model = FinishedModel(path.parent, training, evaluations)
                seed = model.own_results[0].seed
                if path.parent.name == model.model.run_name(seed):
                    models.append(model)
        return cls(folder, tuple(models), tuple(diverged))

    @cached_property
    def losses(self) -> Losses:
        """Losses of all finished models by document.

        Raises:
            UserInputError: as :func:`join_losses`.
        """
        return join_losses(one for model in self.models for one in model.measurements())

    @property
    def trials(self) -> dict[str, dict]:
        """Outcome of each choice of a learning rate, by ``CORPUS/METHOD-LENGTH``."""
        outcomes = {}
        for path in sorted(self.folder.glob(f"tuning/*/*{TRIALS_ENDING}")):
            name = path.name.removesuffix(TRIALS_ENDING)
            outcome = json.loads(path.read_text(encoding="utf-8"))["result"]
            outcomes[f"{path.parent.name}/{name}"] = outcome
        return outcomes

    def alibi_model(self, models: ComparedModels) -> FinishedModel:
        """Return the first model of ALiBi at L.

        Raises:
            UserInputError: no model of ALiBi is finished.
        """
        wanted = TrainedModel(models.corpus, "alibi", models.train_length)
        for finished in self.models:
            if finished.model == wanted:
                return finished
        raise UserInputError(
            f"{self.folder} has no finished model of ALiBi. Pass the study's --results."
        )
