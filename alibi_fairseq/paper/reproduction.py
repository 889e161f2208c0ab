"""``alibi-fairseq reproduce``: the runs that fill tables of the paper, and the outcome."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from ..files import atomic_write
from ..reporting.markdown import NOTHING
from ..results.measurements import Measurement, measurements_of, model_label
from ..results.schema import TRAINING_FILE, load_results_file
from ..runs import torchrun
from ..runs.run import EvalStep, Run
from ..runs.runner import Experiment
from .datasets import PaperDataset
from .recipe import Scale, flags
from .report import write_report
from .report_data import collect
from .report_tables import perplexity_grid, table_rows
from .tables import PaperEvaluation, PaperTraining, curve_evaluations, evaluations, points, title


@dataclass(frozen=True)
class DeviceConfig:
    """The processes of a run."""

    processes: int  # each with a GPU of its own
    cpu: bool = False  # without any


@dataclass(frozen=True)
class ReproductionExperiment(Experiment):
    """Tables and figures of the paper at a scale, as an :class:`.runner.Experiment`."""

    folder: Path
    items: tuple[str, ...]  # e.g. ("table05",)
    trainings: list[PaperTraining]  # that the items need
    data: dict[str, PaperDataset]  # by corpus
    scale: Scale
    machine: (
        DeviceConfig | None
    )  # of one run; None: what each recipe was published for (for a dry run)

    @property
    def gpus(self) -> int:
        return 0 if self.machine is None or self.machine.cpu else self.machine.processes

    @property
    def prepared(self) -> bool:
        return all(data.prepared for data in self.data.values())

    def prepare(self) -> None:
        """Look at texts and numbers of GPUs before any work."""
        list(map(self.run, self.trainings))
        for data in self.data.values():
            data.check()
        for data in self.data.values():
            data.prepare()

    @property
    def runs(self) -> list[Run]:
        return [self.run(training) for training in self.trainings]

    def report(self) -> None:
        """Write and print each table with the path of its file."""
        records = (run.folder / TRAINING_FILE for run in self.runs)
        found = collect([self.folder / "results", *(path for path in records if path.is_file())])
        write_report(found, self.page.parent, with_paper=False)
        for item in self.items:
            path = self.page.with_name(f"{self.scale.name}-{item}.md")
            text = comparison_table(self, item)
            with atomic_write(path) as stream:
                stream.write(text)
            print(f"\n{text}\n({path})")
        print(f"\nThe report with all tables and figures: {self.page}")

    def notes(self) -> list[str]:
        return ["# data", *(data.preparation.line for data in self.data.values()), ""]

    def run(self, training: PaperTraining) -> Run:
        """A training of the paper at this scale; complete once its data is prepared."""
        recipe = self.scale.recipe(training.recipe)
        data = self.data[recipe.corpus]
        machine = self.machine or DeviceConfig(recipe.batch.gpus)
        ages = (self.scale.updates_of(training.recipe, updates) for updates in training.stops)
        *stops, last = dict.fromkeys(ages)
        settings = replace(recipe, updates=last).settings(machine.processes, machine.cpu)
        log = ("--log-format", "json", "--log-interval", str(self.scale.log_interval))
        sweeps = (
            EvalStep(
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
            folder=self.folder / "runs" / data.folder.name / recipe.name,
            data=data.argument,
            flags=(*flags(settings), *log),
            # Not the machine: any number of GPUs sees the same tokens in each update.
            settings={"recipe": recipe.settings(), **data.identity},
            updates=last,
            tokens=last * recipe.batch.tokens_per_update,
            evaluations=tuple(sweeps),
            checkpoint_updates=tuple(stops),
            # At the end of a run the paper evaluates the best model on validation.
            final_checkpoint="checkpoint_best.pt"
            if last == recipe.updates
            else f"checkpoint_{last}.pt",
            launcher=tuple(torchrun.arguments(machine.processes)),
        )

    def results(self, training: PaperTraining, subset: str) -> Path:
        """The results of a run on a split."""
        label = self.data[training.recipe.corpus].folder.name
        return self.folder / "results" / label / f"{training.recipe.name}-{subset}.json"

    @property
    def page(self) -> Path:
        return self.folder / "report" / "report.md"


def comparison_table(tables: ReproductionExperiment, item: str) -> str:
    """The item as Markdown, one table per split and stride, with a warning where it is no replication."""
    scale, parts, name = tables.scale, [f"# {title(item)}\n"], "ours"
    recipe = evaluations(item)[0].recipe
    data = tables.data[recipe.corpus]
    if not data.genuine:
        name = f"ours ({scale.name})"
        parts.append(
            f"**Not a replication.** Ours: {scale.caveat} (scale '{scale.name}', text '{data.text}'). "
            "The paper's numbers stand beside them for orientation only.\n"
        )
    ours = [point for evaluation in evaluations(item) for point in measured(tables, evaluation)]
    groups: dict[tuple[str, int | None], list[Measurement]] = defaultdict(list)
    for point in printed(item):
        groups[point.subset, None if point.nonoverlapping else point.stride].append(point)
    for (subset, stride), some in groups.items():
        cut = "non-overlapping windows" if stride is None else f"sliding windows, S={stride}"
        rows = table_rows(some, ours, label=partial(label, recipe.updates))
        columns = sorted({point.length for point in some})
        table = perplexity_grid(rows, columns, name)
        parts.append(f"Perplexity on {subset}, {cut}:\n\n{table}")
    return "\n".join(parts)


def printed(item: str) -> list[Measurement]:
    """The paper's points of an item, and without perplexity the evaluations behind its curves."""
    found = [
        replace(point, updates=point.updates or recipe.updates, status=NOTHING)
        for recipe, point in points(item)
    ]
    for each in curve_evaluations() if item == "figure05" else ():
        model = (each.recipe.position_method, each.recipe.train_length)
        for length in each.lengths:
            point = Measurement(
                *model, length, length, each.subset, updates=each.updates, status=NOTHING
            )
            if not any(replace(other, perplexity=None) == point for other in found):
                found.append(point)
    return found


def label(updates: int, point: Measurement) -> str:
    """``ALiBi, L=512``, with the share of the updates of a whole run unless it is all of them."""
    share = (point.updates or 0) / updates
    name = model_label(point.position_method, point.train_length)
    return name if share == 1 else f"{name}, {share:.1%} trained"


def measured(tables: ReproductionExperiment, evaluation: PaperEvaluation) -> Iterator[Measurement]:
    """Our perplexities of an evaluation, as those of the paper's model after its number of updates."""
    training = next(each for each in tables.trainings if each.recipe is evaluation.recipe)
    updates = tables.scale.updates_of(training.recipe, evaluation.updates)
    model = tables.run(training).checkpoint_path(updates).resolve()
    results = tables.results(training, evaluation.subset)
    for point in measurements_of(*([load_results_file(results)] if results.is_file() else [])):
        if Path(point.checkpoint or "").resolve() == model:
            yield replace(
                point,
                position_method=evaluation.recipe.position_method,
                train_length=evaluation.recipe.train_length,
                updates=evaluation.updates,
            )
