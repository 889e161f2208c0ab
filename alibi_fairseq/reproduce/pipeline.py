"""All steps of a plan in one folder: data, training and evaluation of each run, report."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from .. import training_record
from ..launcher import Machine
from ..workflow import Command, Stamp, Step
from .data import ALIBI, Data
from .evaluations import evaluation_step
from .plan import Measurement, Run
from .scales import Scale
from .sources import Source
from .trainings import Training


@dataclass(frozen=True)
class Pipeline:
    """The steps of a plan.

    Attributes:
        root: the folder for everything; one per scale.
        sources: by corpus.
        machine: of one run; None: what each recipe was published for (for a dry run).
        parallel: how many runs at a time.
    """

    root: Path
    runs: list[Run]
    sources: dict[str, Source]
    scale: Scale
    machine: Machine | None
    parallel: int = 1

    @cached_property
    def data(self) -> dict[str, Data]:
        """By corpus."""
        return {
            corpus: Data(self.root / "data" / source.folder, source, self.scale)
            for corpus, source in self.sources.items()
        }

    def training(self, run: Run) -> Training:
        """The training of a run at this scale."""
        recipe = self.scale.recipe(run.recipe)
        folder = self.root / "runs" / self._folder(run) / recipe.name
        machine = self.machine or Machine(recipe.batch.gpus)
        data = self.data[recipe.corpus.name]
        return Training(recipe, folder, data, machine, self.scale.log_interval)

    def stops(self, run: Run) -> list[int]:
        """Updates after which a checkpoint of a run is kept, ascending."""
        ages = (self.scale.updates_of(run.recipe, updates) for updates in run.stops)
        return list(dict.fromkeys(ages))

    def age(self, run: Run, measurement: Measurement) -> int:
        """Updates of the checkpoint that is evaluated."""
        return self.scale.updates_of(run.recipe, measurement.updates)

    def results(self, run: Run, subset: str) -> Path:
        """The results of a run on a split."""
        return self.root / "results" / self._folder(run) / f"{run.recipe.name}-{subset}.json"

    def steps(self, run: Run) -> list[Step]:
        """Training and evaluation of one run; complete once its data is prepared."""
        training = self.training(run)
        steps = [training.step(updates) for updates in self.stops(run)]
        for measurement in run.measurements:
            out = self.results(run, measurement.subset)
            # Side by side, only trainings show a progress bar.
            log = training.folder / "evaluate.log" if self.parallel > 1 else None
            age = self.age(run, measurement)
            steps.append(evaluation_step(training, measurement, age, out, log))
        return steps

    @property
    def page(self) -> Path:
        return self.root / "report" / "report.md"

    def report(self) -> Step:
        """The step that writes the report of all results in this folder."""
        results = self.root / "results"
        wanted = (self.training(run).folder / training_record.FILE_NAME for run in self.runs)
        records = [path for path in wanted if path.is_file()]
        made_of = [*sorted(results.rglob("*.json")), *records]
        stamp = Stamp(
            self.page.with_name("made.json"),
            {"results": [str(path.relative_to(self.root)) for path in made_of]},
            made_of,
            [self.page],
        )
        return Step(
            title="the report",
            work=Command(
                [*ALIBI, "report", *map(str, [results, *records]), "--out", str(self.page.parent)]
            ),
            done=stamp.holds,
            finish=stamp.write,
        )

    def _folder(self, run: Run) -> str:
        return self.sources[run.recipe.corpus.name].folder
