"""``alibi-fairseq reproduce``: the runs that fill tables and figures of the paper."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from ..files import check_disk
from ..paper.scales import Scale
from ..paper.tables import Training
from ..results.schema import TRAINING_FILE
from ..results.stamps import Stamp
from . import paper_costs as costs
from .command import Command
from .paper_data import Data, Source, check_source
from .run import ALIBI, Run, Sweep
from .runner import Step, run_step
from .torchrun import Machine, launcher_flags, train_flags


@dataclass(frozen=True)
class PaperTables:
    """Tables and figures of the paper at a scale, as an :class:`.runner.Experiment`.

    Attributes:
        folder: the folder for everything; one per scale.
        items: of the paper, e.g. ``("table05",)``.
        trainings: that the items need.
        sources: by corpus.
        machine: of one run; None: what each recipe was published for (for a dry run).
        name: what was asked for, e.g. ``all``.
    """

    folder: Path
    items: tuple[str, ...]
    trainings: list[Training]
    sources: dict[str, Source]
    scale: Scale
    machine: Machine | None
    name: str = ""

    option = "--work-dir"
    threads = None
    partial = False

    @property
    def gpus(self) -> int:
        return 0 if self.machine is None or self.machine.cpu else self.machine.processes

    @property
    def prepared(self) -> bool:
        return all(data.prepared for data in self.data.values())

    def prepare(self) -> None:
        self._look_ahead()
        for data in self.data.values():
            for step in data.steps():
                run_step(step)

    @property
    def runs(self) -> list[Run]:
        return [self.run(training) for training in self.trainings]

    def report(self) -> None:
        from .paper_outcome import print_outcome, write_overview

        run_step(self._report())
        print_outcome(self, self.items)
        if self.name == "all":
            print(f"All of them on one page: {write_overview(self, self.items)}")

    def cost(self) -> str:
        steps = [step for data in self.data.values() for step in data.steps()]
        prepare = [step.work.line for step in steps if isinstance(step.work, Command)]
        return "\n".join(["# data", *prepare, "", costs.cost_table(self)])

    @cached_property
    def data(self) -> dict[str, Data]:
        """By corpus."""
        return {
            corpus: Data(self.folder / "data" / source.folder, source, self.scale)
            for corpus, source in self.sources.items()
        }

    def run(self, training: Training) -> Run:
        """A training of the paper at this scale; complete once its data is prepared."""
        recipe = self.scale.recipe(training.recipe)
        data = self.data[recipe.corpus.name]
        machine = self.machine or Machine(recipe.batch.gpus)
        *stops, last = self.stops(training)
        flags = train_flags(replace(recipe, updates=last), machine)
        flags += ["--log-format", "json", "--log-interval", str(self.scale.log_interval)]
        sweeps = (
            Sweep(
                results=self.results(training, measurement.subset),
                lengths=measurement.lengths,
                strides=(str(measurement.stride or "full"),),
                subset=measurement.subset,
                updates=self.scale.updates_of(training.recipe, measurement.updates),
                flags=("--device", "cpu") if machine.cpu else (),
            )
            for measurement in training.measurements
        )
        return Run(
            name=recipe.path,
            folder=self.folder / "runs" / data.source.folder / recipe.name,
            data=data.argument,
            flags=tuple(flags),
            # Not the machine: any number of GPUs sees the same tokens in each update.
            settings={"recipe": recipe.settings(), **data.identity},
            updates=last,
            evaluations=tuple(sweeps),
            stops=tuple(stops),
            # At the end of a run the paper evaluates the best model on validation.
            final="checkpoint_best.pt" if last == recipe.updates else f"checkpoint_{last}.pt",
            launcher=tuple(launcher_flags(machine, max_restarts=3)),
        )

    def stops(self, training: Training) -> list[int]:
        """Updates after which a checkpoint of a run is kept, ascending."""
        ages = (self.scale.updates_of(training.recipe, updates) for updates in training.stops)
        return list(dict.fromkeys(ages))

    def results(self, training: Training, subset: str) -> Path:
        """The results of a run on a split."""
        source = self.sources[training.recipe.corpus.name]
        return self.folder / "results" / source.folder / f"{training.recipe.name}-{subset}.json"

    @property
    def page(self) -> Path:
        return self.folder / "report" / "report.md"

    def _report(self) -> Step:
        """The step that writes the report of all results in this folder."""
        results = self.folder / "results"
        wanted = (run.folder / TRAINING_FILE for run in self.runs)
        records = [path for path in wanted if path.is_file()]
        made_of = [*sorted(results.rglob("*.json")), *records]
        stamp = Stamp(
            self.page.with_name("made.json"),
            {"results": [str(path.relative_to(self.folder)) for path in made_of]},
            made_of,
            [self.page],
        )
        words = ["report", *map(str, [results, *records]), "--out", str(self.page.parent)]
        return Step("the report", Command([*ALIBI, *words]), stamp.holds, finish=stamp.write)

    def _look_ahead(self) -> None:
        """Check texts, GPUs, folders and disk space before any work.

        Raises:
            BadInput: something would fail later.
        """
        peaks = []
        for data in self.data.values():
            prepare = next(data.steps())
            if not prepare.done():
                check_source(data.source)
                prepare.check()
                peaks.append(data.disk_needed)
        needed = costs.one_after_another(peaks)
        for training, run in zip(self.trainings, self.runs):
            prepared = self.data[training.recipe.corpus.name].prepared
            if prepared and run.done:
                continue
            if prepared:
                run.check()
            recipe = self.scale.recipe(training.recipe)
            most = costs.checkpoint_bytes(recipe, len(run.stops))
            needed += max(0, most - _bytes_in(run.folder))
        check_disk(self.folder, needed, "The remaining work", "--work-dir")


def _bytes_in(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
