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
from .paper_data import Data, Source
from .run import ALIBI, Run, Sweep
from .runner import Experiment
from .torchrun import Machine, launcher_flags, train_flags


@dataclass(frozen=True)
class PaperTables(Experiment):
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

    @property
    def gpus(self) -> int:
        return 0 if self.machine is None or self.machine.cpu else self.machine.processes

    @property
    def prepared(self) -> bool:
        return all(data.prepared for data in self.data.values())

    def prepare(self) -> None:
        """Look at texts, GPUs, folders and disk space before any work."""
        needed = costs.one_after_another([data.check() for data in self.data.values()])
        for training, run in zip(self.trainings, self.runs):
            prepared = self.data[training.recipe.corpus].prepared
            if not (prepared and run.done):
                if prepared:
                    run.check()
                most = costs.checkpoint_bytes(self.scale, training.recipe, len(run.stops))
                there = sum(each.stat().st_size for each in run.folder.rglob("*") if each.is_file())
                needed += max(0, most - there)
        check_disk(self.folder, needed, "The remaining work", "--work-dir")
        for data in self.data.values():
            data.prepare()

    @property
    def runs(self) -> list[Run]:
        return [self.run(training) for training in self.trainings]

    def report(self) -> None:
        from .paper_outcome import print_outcome, write_overview

        results = self.folder / "results"
        wanted = (run.folder / TRAINING_FILE for run in self.runs)
        records = [path for path in wanted if path.is_file()]
        made_of = [*sorted(results.rglob("*.json")), *records]
        names = {"results": [str(path.relative_to(self.folder)) for path in made_of]}
        stamp = Stamp(self.page.with_name("made.json"), names, made_of, [self.page])
        if not stamp.holds():
            words = ["report", *map(str, [results, *records]), "--out", str(self.page.parent)]
            Command("the report", [*ALIBI, *words]).run()
            stamp.write()
        print_outcome(self, self.items)
        if self.name == "all":
            print(f"All of them on one page: {write_overview(self, self.items)}")

    def cost(self) -> str:
        prepare = [each.line for data in self.data.values() for each in data.commands()]
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
        data = self.data[recipe.corpus]
        machine = self.machine or Machine(recipe.batch.gpus)
        *stops, last = self.stops(training)
        flags = train_flags(replace(recipe, updates=last), machine)
        flags += ["--log-format", "json", "--log-interval", str(self.scale.log_interval)]
        sweeps = (
            Sweep(
                results=self.results(training, each.subset),
                lengths=each.lengths,
                strides=(str(each.stride or "full"),),
                subset=each.subset,
                updates=self.scale.updates_of(training.recipe, each.updates),
                flags=("--device", "cpu") if machine.cpu else (),
            )
            for each in training.evaluations
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
        source = self.sources[training.recipe.corpus]
        return self.folder / "results" / source.folder / f"{training.recipe.name}-{subset}.json"

    @property
    def page(self) -> Path:
        return self.folder / "report" / "report.md"
