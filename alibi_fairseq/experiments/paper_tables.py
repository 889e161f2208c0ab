"""``alibi-fairseq reproduce``: the runs that fill tables and figures of the paper, and their costs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from ..files import check_disk
from ..paper import published
from ..paper.recipe import PAPER, Recipe, Scale
from ..paper.tables import Training
from ..reporting import markdown
from ..reporting.collect import collect
from ..reporting.report import write_report
from ..results.schema import TRAINING_FILE
from .paper_data import Data
from .run import Run, Sweep
from .runner import Experiment
from .torchrun import Machine, launcher_flags, train_flags

#: Bytes per parameter of a checkpoint at most: weights and the optimiser's state, both in fp32.
BYTES = {"nag": 8, "adam": 12}
_CHECKPOINTS = 3  # the best, the last, and the one that is being written


@dataclass(frozen=True)
class PaperTables(Experiment):
    """Tables and figures of the paper at a scale, as an :class:`.runner.Experiment`."""

    folder: Path
    items: tuple[str, ...]  # e.g. ("table05",)
    trainings: list[Training]  # that the items need
    data: dict[str, Data]  # by corpus
    scale: Scale
    machine: Machine | None  # of one run; None: what each recipe was published for (for a dry run)
    overview: bool = False  # also write the page of all tables and figures

    @property
    def gpus(self) -> int:
        return 0 if self.machine is None or self.machine.cpu else self.machine.processes

    @property
    def prepared(self) -> bool:
        return all(data.prepared for data in self.data.values())

    def prepare(self) -> None:
        """Look at texts, GPUs, folders and disk space before any work."""
        needed = one_after_another([data.check() for data in self.data.values()])
        for training, run in zip(self.trainings, self.runs):
            prepared = self.data[training.recipe.corpus].prepared
            if not (prepared and run.done):
                if prepared:
                    run.check()
                most = checkpoint_bytes(self.scale, training.recipe, len(run.stops))
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

        records = (run.folder / TRAINING_FILE for run in self.runs)
        found = collect([self.folder / "results", *(path for path in records if path.is_file())])
        write_report(found, self.page.parent, with_paper=False)
        print_outcome(self, self.items)
        if self.overview:
            print(f"All of them on one page: {write_overview(self, self.items)}")

    def cost(self) -> str:
        prepare = [each.line for data in self.data.values() for each in data.commands()]
        return "\n".join(["# data", *prepare, "", cost_table(self)])

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
            folder=self.folder / "runs" / data.label / recipe.name,
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
        label = self.data[training.recipe.corpus].label
        return self.folder / "results" / label / f"{training.recipe.name}-{subset}.json"

    @property
    def page(self) -> Path:
        return self.folder / "report" / "report.md"


def v100_hours(recipe: Recipe, updates: int) -> float | None:
    """Hours of one V100: as Table 12 states them, or tokens at the paper's speed; None without one."""
    model = (recipe.position_method, recipe.train_length)

    def found(item: str, column: str) -> int | None:
        rows = {(row["position_method"], row["train_length"]): row for row in published.rows(item)}
        return rows[model][column] if model in rows else None

    if published.about("table12")["corpus"] == recipe.corpus and (
        hours := found("table12", "gpu_hours")
    ):
        return hours * updates / recipe.updates
    # Figure 7 has all lengths, Table 1 all methods; both were measured on WikiText-103.
    column = "train_words_per_second"
    speed = found("figure07", column) or found("table01", column)
    return speed and updates * recipe.batch.tokens_per_update / speed / 3600


def checkpoint_bytes(scale: Scale, recipe: Recipe, kept: int) -> int:
    """Disk that a run takes at most, which also keeps models of earlier updates."""
    options = scale.recipe(recipe).options
    each = scale.parameters(recipe) * BYTES[str(options["optimizer"]["_name"])]
    return each * (_CHECKPOINTS + ("save_interval_updates" in options["checkpoint"]) + kept)


def one_after_another(peaks: list[float]) -> float:
    """Disk that several preparations take: each leaves less than half of its peak."""
    return (max(peaks, default=0.0) + sum(peaks)) / 2


def cost_table(tables: PaperTables) -> str:
    """Tokens, hours and disk of each run, and their sums, with a sentence on the hours."""
    scale, lines = tables.scale, []
    peaks = [data.disk_needed + 4 * sum(scale.excerpt.values()) for data in tables.data.values()]
    for data, peak in zip(tables.data.values(), peaks):
        lines.append([f"data of {data.corpus}", "", "", "", gigabytes(peak)])
    tokens, hours, disk = 0, 0.0, one_after_another(peaks)
    for training in tables.trainings:
        recipe, stops = scale.recipe(training.recipe), tables.stops(training)
        of_run = stops[-1] * recipe.batch.tokens_per_update
        time = v100_hours(recipe, stops[-1]) if scale is PAPER else None
        size = checkpoint_bytes(scale, training.recipe, len(stops) - 1)
        tokens, hours, disk = tokens + of_run, hours + (time or 0), disk + size
        shown = markdown.NOTHING if time is None else f"{time:,.0f}"
        row = [training.recipe.path, f"{stops[-1]:,}", f"{of_run:,}", shown]
        lines.append([*row, gigabytes(size)])
    together = f"{hours:,.0f}" if scale is PAPER else markdown.NOTHING
    lines.append(["together", "", f"{tokens:,}", together, gigabytes(disk)])
    headers = ["", "updates", "tokens trained", "V100 hours", "disk at most"]
    said = (
        "V100 hours are tokens at the training speeds the paper measured (Table 1, Figure 7; "
        "1.3B parameters: the hours of Table 12); evaluations come on top."
        if scale is PAPER
        else f"The scale '{scale.name}' trains other models than the paper, which has no speeds "
        "for them."
    )
    return f"{markdown.table(headers, lines)}\n{said} Nothing was run or written."


def gigabytes(size: float) -> str:
    return f"{size / 1e9:,.2f} GB"
