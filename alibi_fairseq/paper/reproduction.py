"""The experiment of ``alibi-fairseq reproduce``: the runs of the paper's tables, and their results."""

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
from .cost import cost_table, run_cost
from .datasets import PaperDataset
from .recipe import Scale, flags
from .report import write_report
from .report_data import collect
from .report_tables import perplexity_grid, table_rows
from .tables import PaperEvaluation, PaperTraining, curve_evaluations, evaluations, points, title

#: Checkpoint with the best validation loss.
BEST = "checkpoint_best.pt"


@dataclass(frozen=True)
class DeviceConfig:
    """Processes of a run, each on one GPU or on the CPU."""

    processes: int
    cpu: bool = False


@dataclass(frozen=True)
class ReproductionExperiment(Experiment):
    """Tables and figures of the paper at a scale, as an :class:`.runner.Experiment`.

    Attributes:
        folder: working folder.
        items: tables and figures, e.g. ``("table05",)``.
        trainings: training runs that the items need.
        data: datasets by corpus.
        scale: size of the runs.
        machine: processes of each run; None for the number of GPUs of each recipe, for a dry run.
    """

    folder: Path
    items: tuple[str, ...]
    trainings: list[PaperTraining]
    data: dict[str, PaperDataset]
    scale: Scale
    machine: DeviceConfig | None

    @property
    def gpus(self) -> int:
        """Number of GPUs per run."""
        return 0 if self.machine is None or self.machine.cpu else self.machine.processes

    @property
    def prepared(self) -> bool:
        """True if all datasets are prepared."""
        return all(data.prepared for data in self.data.values())

    def prepare(self) -> None:
        """Prepare the datasets after validating them and the number of GPUs."""
        for training in self.trainings:
            self.run(training)
        for data in self.data.values():
            data.check()
        for data in self.data.values():
            data.prepare()

    @property
    def runs(self) -> list[Run]:
        """Runs of all trainings."""
        return [self.run(training) for training in self.trainings]

    def report(self) -> None:
        """Write the report, and write and print the table of each item."""
        paths = [self.folder / "results"]
        for run in self.runs:
            record = run.folder / TRAINING_FILE
            if record.is_file():
                paths.append(record)
        write_report(collect(paths), self.page.parent, with_paper=False)
        for item in self.items:
            path = self.page.with_name(f"{self.scale.name}-{item}.md")
            text = comparison_table(self, item)
            with atomic_write(path) as stream:
                stream.write(text)
            print(f"\n{text}\n({path})")
        print(f"\nThe report with all tables and figures: {self.page}")

    def notes(self) -> list[str]:
        """Return the lines of a dry run that prepare the data."""
        return ["# data", *(data.preparation.line for data in self.data.values()), ""]

    def costs(self) -> list[str]:
        """Return the lines of a dry run that estimate time and disk space."""
        if self.scale.updates is not None:
            return [f"The time at the scale '{self.scale.name}' is unknown.", ""]
        costs = []
        for training in self.trainings:
            run = self.run(training)
            machine = self.machine or DeviceConfig(training.recipe.batch.gpus)
            gpus = 0 if machine.cpu else machine.processes
            # Besides those below: the last one, and the one with the best validation loss.
            checkpoints = 2 + len(run.checkpoint_updates)
            if run.final_checkpoint != BEST:
                checkpoints += 1
            costs.append(run_cost(training.recipe, run.updates, gpus, checkpoints))
        return [cost_table(costs), ""]

    def run(self, training: PaperTraining) -> Run:
        """Create the run of a training at this scale; its settings require prepared data."""
        recipe = self.scale.recipe(training.recipe)
        data = self.data[recipe.corpus]
        machine = self.machine or DeviceConfig(recipe.batch.gpus)
        stops = [self.scale.updates_of(training.recipe, updates) for updates in training.stops]
        *earlier_stops, last = dict.fromkeys(stops)
        settings = replace(recipe, updates=last).settings(machine.processes, machine.cpu)
        final_checkpoint = f"checkpoint_{last}.pt"
        if last == recipe.updates:
            # At the end of a run the paper evaluates the best checkpoint on validation.
            final_checkpoint = BEST
        log_flags = ("--log-format", "json", "--log-interval", str(self.scale.log_interval))
        return Run(
            name=recipe.path,
            folder=self.folder / "runs" / data.folder.name / recipe.name,
            data=data.argument,
            flags=(*flags(settings), *log_flags),
            # Without the machine: any number of GPUs sees the same tokens in each update.
            settings={"recipe": recipe.settings(), **data.identity},
            updates=last,
            tokens=last * recipe.batch.tokens_per_update,
            evaluations=tuple(
                self._eval_step(training, evaluation, machine)
                for evaluation in training.evaluations
            ),
            checkpoint_updates=tuple(earlier_stops),
            final_checkpoint=final_checkpoint,
            launcher=tuple(torchrun.arguments(machine.processes)),
        )

    def _eval_step(
        self, training: PaperTraining, evaluation: PaperEvaluation, machine: DeviceConfig
    ) -> EvalStep:
        """Create the evaluation step of a run at this scale."""
        config = evaluation.config
        if machine.cpu:
            config = replace(config, device="cpu")
        return EvalStep(
            results=self.results(training, evaluation.subset),
            config=config,
            updates=self.scale.updates_of(training.recipe, evaluation.updates),
        )

    def results(self, training: PaperTraining, subset: str) -> Path:
        """Return the path of a run's results on a split."""
        label = self.data[training.recipe.corpus].folder.name
        return self.folder / "results" / label / f"{training.recipe.name}-{subset}.json"

    @property
    def page(self) -> Path:
        """Path of the report's page."""
        return self.folder / "report" / "report.md"


def comparison_table(experiment: ReproductionExperiment, item: str) -> str:
    """Format an item as Markdown, one table per split and stride.

    A warning precedes the tables unless they are a replication of the paper.
    """
    scale = experiment.scale
    recipe = evaluations(item)[0].recipe
    data = experiment.data[recipe.corpus]
    parts = [f"# {title(item)}\n"]
    name = "ours"
    if not data.genuine:
        name = f"ours ({scale.name})"
        parts.append(
            f"**Not a replication.** Ours: {scale.caveat} (scale '{scale.name}', text '{data.text}'). "
            "The paper's numbers stand beside them for orientation only.\n"
        )
    ours: list[Measurement] = []
    for evaluation in evaluations(item):
        ours += measured(experiment, evaluation)
    groups: dict[tuple[str, int | None], list[Measurement]] = defaultdict(list)
    for point in printed(item):
        stride = None if point.nonoverlapping else point.stride
        groups[point.subset, stride].append(point)
    for (subset, stride), group in groups.items():
        windows = "non-overlapping windows" if stride is None else f"sliding windows, S={stride}"
        rows = table_rows(group, ours, label=partial(label, recipe.updates))
        lengths = sorted({point.length for point in group})
        table = perplexity_grid(rows, lengths, name)
        parts.append(f"Perplexity on {subset}, {windows}:\n\n{table}")
    return "\n".join(parts)


def printed(item: str) -> list[Measurement]:
    """Return the paper's measurements of an item.

    The evaluations of Figure 5's curves are included without a perplexity.
    """
    measurements = [
        replace(point, updates=point.updates or recipe.updates, status=NOTHING)
        for recipe, point in points(item)
    ]
    if item != "figure05":
        return measurements
    for evaluation in curve_evaluations():
        for length in evaluation.config.lengths:
            point = Measurement(
                position_method=evaluation.recipe.position_method,
                train_length=evaluation.recipe.train_length,
                length=length,
                stride=length,
                subset=evaluation.subset,
                updates=evaluation.updates,
                status=NOTHING,
            )
            if point not in measurements:
                measurements.append(point)
    return measurements


def label(updates: int, point: Measurement) -> str:
    """Return ``ALiBi, L=512``, with the fraction of a run's updates if it is not the whole run."""
    fraction = (point.updates or 0) / updates
    name = model_label(point.position_method, point.train_length)
    return name if fraction == 1 else f"{name}, {fraction:.1%} trained"


def measured(
    experiment: ReproductionExperiment, evaluation: PaperEvaluation
) -> Iterator[Measurement]:
    """Yield our measurements of an evaluation, with the method, length, and updates of the paper."""
    recipe = evaluation.recipe
    training = next(
        training for training in experiment.trainings if training.recipe is evaluation.recipe
    )
    results = experiment.results(training, evaluation.subset)
    if not results.is_file():
        return
    updates = experiment.scale.updates_of(recipe, evaluation.updates)
    checkpoint = experiment.run(training).checkpoint_path(updates).resolve()
    for point in measurements_of(load_results_file(results)):
        if Path(point.checkpoint or "").resolve() == checkpoint:
            yield replace(
                point,
                position_method=recipe.position_method,
                train_length=recipe.train_length,
                updates=evaluation.updates,
            )
