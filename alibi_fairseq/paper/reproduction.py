"""The experiment of ``alibi-fairseq reproduce``: runs of the paper's tables and their results."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path

from ..completion_marker import CompletionMarker
from ..errors import UserInputError
from ..evaluation.sweep import of_checkpoint
from ..experiment import nodes, torchrun
from ..experiment.eval_step import EvalStep
from ..experiment.plan import Plan
from ..experiment.run import Run
from ..experiment.runner import Experiment, unfinished_runs
from ..experiment.slots import Resources
from ..files import atomic_write
from ..positions.spec import MethodSpec
from ..reporting.markdown import to_markdown
from ..results.file import load
from ..results.file_names import BEST_CHECKPOINT, TRAINING_FILE, kept_checkpoint
from ..results.result import Result
from ..results.training_settings import method_json
from .collected_results import CollectedResults, collect
from .cost import RunCost, evaluation_hours, run_cost, run_cost_table, total
from .datasets import PaperDataset
from .items import Item, items
from .recipe import Recipe, flags, for_80gb
from .scale import Scale
from .tables import item_tables
from .trainings import PaperTraining, plan_evaluations

#: Main memory of a training process besides its checkpoint, in 10⁹ bytes: Python, PyTorch, CUDA,
#: and the model. An estimate.
MEMORY_GB = 14


@dataclass(frozen=True)
class DeviceConfig:
    """Processes of a run on all its nodes together, each on one GPU or on the CPU."""

    processes: int
    cpu: bool = False
    nodes: int = 1

    @classmethod
    def from_options(cls, gpus: int | None, cpu: int | None, nodes: int = 1) -> DeviceConfig | None:
        """Return the devices that ``--gpus`` or ``--cpu`` selects; None without either.

        Raises:
            UserInputError: both are given.
        """
        if gpus is not None and cpu is not None:
            raise UserInputError("--gpus and --cpu exclude each other. Pass one of them.")
        if gpus is not None:
            return cls(gpus, nodes=nodes)
        if cpu is not None:
            return cls(cpu, cpu=True, nodes=nodes)
        return None

    @property
    def processes_per_node(self) -> int:
        """Number of processes on each node."""
        return self.processes // self.nodes


def require_gpus() -> int:
    """Return the number of GPUs of this machine, at least 1."""
    import torch

    gpu_count = torch.cuda.device_count()
    if not gpu_count:
        raise UserInputError("This machine has no GPU. Pass --cpu N for N processes on the CPU.")
    return gpu_count


@dataclass(frozen=True)
class ReproductionExperiment(Experiment):
    """Experiment that reproduces tables and figures of the paper at a scale.

    Attributes:
        folder: working folder.
        items: tables and figures, e.g. ``("table05",)``.
        trainings: training runs that the items need.
        data: datasets by corpus.
        scale: scale of the runs.
        devices: devices of each run; None for the number of GPUs of each recipe, for a dry run.
        on_80gb: True to adapt the recipes to cards with 80 GB.
    """

    folder: Path
    items: tuple[str, ...]
    trainings: list[PaperTraining]
    data: dict[str, PaperDataset]
    scale: Scale
    devices: DeviceConfig | None
    on_80gb: bool = False

    @property
    def resources(self) -> Resources:
        """What each run uses. Every process loads the whole checkpoint."""
        memory_gb = None
        if self.scale.updates is None:
            costs = [run_cost(training.recipe, 1, 1, checkpoints=1) for training in self.trainings]
            memory_gb = ceil(MEMORY_GB + max(cost.checkpoint_gb for cost in costs))
        if self.devices is None:
            return Resources(gpus=0, memory_gb=memory_gb)
        processes = self.devices.processes_per_node
        gpus = 0 if self.devices.cpu else processes
        return Resources(gpus, self.devices.nodes, processes, memory_gb)

    @property
    def prepared(self) -> bool:
        """True if all datasets are prepared."""
        return all(dataset.prepared for dataset in self.data.values())

    def prepare(self) -> None:
        """Prepare the datasets after validating them and the number of GPUs."""
        for training in self.trainings:
            # Raises an error if the sequences cannot be divided among the GPUs.
            self.build_run(training)
        for dataset in self.data.values():
            dataset.check()
        for dataset in self.data.values():
            dataset.prepare()

    def plan(self) -> Plan:
        """Return the runs of all trainings."""
        return Plan(tuple(self.build_run(training) for training in self.trainings))

    def report(self) -> None:
        """Write the report, and write and print the table of each item."""
        from .report import write_report  # imports matplotlib

        paths = [self.folder / "results"]
        for run in self.plan().runs:
            record = run.folder / TRAINING_FILE
            if record.is_file():
                paths.append(record)
        write_report(self._of_own_models(collect(paths)), self.page.parent, with_paper=False)
        for item in self.items:
            path = self.page.with_name(f"{self.scale.name}-{item}.md")
            text = self._table(items()[item])
            with atomic_write(path) as stream:
                stream.write(text)
            print(f"\n{text}\n({path})")
        print(f"\nThe report with all tables and figures: {self.page}")

    def _of_own_models(self, collected: CollectedResults) -> CollectedResults:
        """Leave out evaluations of models that are not in the folder.

        After the folder of a run was moved away or renamed, its results remain until the next model
        is evaluated.
        """
        own: set[str | None] = {None}  # validations
        for path in self.folder.glob("results/*/*.json"):
            name, _, _ = path.stem.rpartition("-")  # without the split
            for marker in (self.folder / "runs" / path.parent.name / name).glob("trained-*.json"):
                own.add(CompletionMarker(marker).output_sha256)
        files = []
        for path, file in collected.files:
            results = [result for result in file.results if result.checkpoint_sha256 in own]
            if results:
                files.append((path, replace(file, results=results)))
        results = [result for result in collected.results if result.checkpoint_sha256 in own]
        return CollectedResults(files, results)

    def _table(self, item: Item) -> str:
        """Format an item next to our numbers, with a warning unless they are a replication."""
        dataset = self.data[item.corpus]
        ours = self.results_for(item.key)
        if dataset.is_paper_corpus:
            return f"# {item.title}\n\n{to_markdown(item_tables(item, ours))}"
        caveat = (
            f"**Not a replication.** Ours: {self.scale.caveat} (scale '{self.scale.name}', text "
            f"'{dataset.name_in_results}'). The paper's numbers are shown for reference only.\n"
        )
        tables = item_tables(item, ours, f"ours ({self.scale.name})", compare=False)
        return f"# {item.title}\n\n{caveat}\n{to_markdown(tables)}"

    def dry_run_header(self) -> list[str]:
        """Return the lines of a dry run that prepare the data."""
        commands = [dataset.preparation_command for dataset in self.data.values()]
        return ["# data", *commands, ""]

    def dry_run_footer(self) -> list[str]:
        """Return the lines of a dry run that estimate time and disk space of unfinished runs."""
        if self.scale.updates is not None:
            return [f"The time at the scale '{self.scale.name}' is unknown.", ""]
        unfinished = {run.name: run for run in unfinished_runs(self, self.plan())}
        costs = []
        for training in self.trainings:
            if training.recipe.path in unfinished:
                costs.append(self._cost(training, unfinished[training.recipe.path]))
        return [run_cost_table(costs), ""]

    def _cost(self, training: PaperTraining, run: Run) -> RunCost:
        """Estimate the cost of the steps of a run that are not complete.

        A training that was stopped counts as a whole: its update count is in a checkpoint that can
        have 16 GB.
        """
        devices = self._choose_devices(self._adapt_recipe(training))
        # fairseq keeps the last checkpoint and the one with the best validation loss.
        checkpoints = 2 + len(run.keep_at)
        if run.final_checkpoint != BEST_CHECKPOINT:
            checkpoints += 1  # a copy of the last one
        saving = training.recipe.options["checkpoint"]
        if "save_interval_updates" in saving:
            num_kept = saving["keep_interval_updates"]  # saved within an epoch
            assert isinstance(num_kept, int)
            checkpoints += num_kept
        updates = 0 if run.is_trained else run.updates
        gpus = 0 if devices.cpu else devices.processes
        hours = []
        for evaluation, step in zip(training.evaluations, run.eval_steps, strict=True):
            if not step.is_complete:
                hours.append(evaluation_hours(evaluation))
        cost = run_cost(training.recipe, updates, gpus, checkpoints)
        return replace(cost, evaluation_hours=total(hours))

    def build_run(self, training: PaperTraining) -> Run:
        """Create the run of a training at this scale.

        The run's request identifies the data only once the data is prepared.

        Raises:
            UserInputError: the sequences of an update cannot be divided among the GPUs.
        """
        recipe = self._adapt_recipe(training)
        dataset = self.data[recipe.corpus]
        devices = self._choose_devices(recipe)
        endpoint = nodes.rendezvous_endpoint(recipe.path)
        job = recipe.path.replace("/", "-")
        launcher = torchrun.launcher_flags(devices.processes, devices.nodes, endpoint, job)
        scaled = [
            self.scale.scale_updates(training.recipe, count) for count in training.update_counts
        ]
        update_counts = list(dict.fromkeys(scaled))  # some are the same at a small scale
        last = update_counts[-1]
        settings = replace(recipe, updates=last).settings(devices.processes, devices.cpu)
        log_flags = ("--log-format", "json", "--log-interval", str(self.scale.log_interval))
        final_checkpoint = kept_checkpoint(last)
        if last == recipe.updates:
            # At the end of a run the paper evaluates the best checkpoint on validation.
            final_checkpoint = BEST_CHECKPOINT
        run = Run(
            name=recipe.path,
            folder=self.folder / "runs" / dataset.folder.name / recipe.name,
            data=dataset.data_argument,
            flags=(*flags(settings), *log_flags),
            # Without the devices: any number of GPUs sees the same tokens in each update.
            request={"recipe": recipe.settings(), **dataset.identity},
            updates=last,
            tokens=last * recipe.batch.tokens_per_update,
            keep_at=tuple(update_counts[:-1]),
            final_checkpoint=final_checkpoint,
            program=nodes.program(launcher, devices.nodes),
        )
        eval_steps = []
        for evaluation in training.evaluations:
            updates = self.scale.scale_updates(training.recipe, evaluation.updates)
            config = replace(evaluation.config, device="cpu") if devices.cpu else evaluation.config
            step = EvalStep(
                checkpoint=run.checkpoint_path(updates),
                training_marker_path=run.training_marker(updates).path,
                data=run.data,
                results_path=self.results_path(training.recipe, evaluation.split),
                config=config,
            )
            eval_steps.append(step)
        return replace(run, eval_steps=tuple(eval_steps))

    def _adapt_recipe(self, training: PaperTraining) -> Recipe:
        """Return the recipe of a run for this hardware and at this scale."""
        recipe = training.recipe
        if self.on_80gb:
            recipe = for_80gb(recipe)
        return self.scale.scale_recipe(recipe)

    def _choose_devices(self, recipe: Recipe) -> DeviceConfig:
        """Return the devices of a run of a recipe."""
        return self.devices or DeviceConfig(recipe.batch.gpus)

    def results_path(self, recipe: Recipe, split: str) -> Path:
        """Return the path of a run's results on a split."""
        name = f"{recipe.name}-{split}.json"
        return self.folder / "results" / self.data[recipe.corpus].folder.name / name

    def results_for(self, item: str) -> list[Result]:
        """Return our results of an item, labeled as the paper's.

        They have the method, length, and update counts of the paper's recipes, whatever the scale.
        """
        runs = {training.recipe.path: self.build_run(training) for training in self.trainings}
        results: list[Result] = []
        for evaluation in plan_evaluations((item,)):
            recipe = evaluation.recipe
            path = self.results_path(recipe, evaluation.split)
            if not path.is_file():
                continue
            of_paper = {
                "method": method_json(MethodSpec.plain(recipe.position_method)),
                "task.tokens_per_sample": recipe.train_length,
            }
            updates = self.scale.scale_updates(recipe, evaluation.updates)
            run = runs[recipe.path]
            sha256 = run.training_marker(updates).output_sha256
            if sha256 is None:  # not trained, or moved away, which leaves its results
                continue
            for result in of_checkpoint(load(path).results, run.checkpoint_path(updates), sha256):
                settings = {**result.series.settings, **of_paper}
                series = replace(result.series, settings=settings)
                results.append(replace(result, series=series, updates=evaluation.updates))
        return results

    @property
    def page(self) -> Path:
        """Path of the report's page."""
        return self.folder / "report" / "report.md"
