"""From a request to its end: look ahead, run what is not done, show the outcome."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..files import check_disk
from ..workflow import Step, exit_code, locked, run_chains, run_step
from . import costs
from .outcome import print_outcome
from .overview import write_overview
from .pipeline import Pipeline
from .scales import MINI
from .sources import check


def carry_out(pipeline: Pipeline, items: tuple[str, ...], name: str) -> int:
    """Do what is not done yet and show the tables.

    Args:
        items: of the paper, e.g. ``("table05",)``.
        name: what was asked for, e.g. ``table5``.

    Returns:
        0; 75 if it was asked to stop; otherwise the exit code of the command that failed.

    Raises:
        BadInput: something is wrong that can be checked before the work.
    """

    def work() -> None:
        with locked(pipeline.root):
            ran = do_all(pipeline)
            print_outcome(pipeline, items)
            if name == "all":
                print(f"All of them on one page: {write_overview(pipeline, items)}")
        if not ran:
            print(f"Nothing to do: all of {name} at the scale '{pipeline.scale.name}' is done.")

    return exit_code(work)


@dataclass(frozen=True)
class ReproductionWork:
    """A plan as :class:`alibi_fairseq.workflow.Work`.

    Attributes:
        items: of the paper, to be shown at the end.
    """

    pipeline: Pipeline
    items: tuple[str, ...]

    @property
    def folder(self) -> Path:
        return self.pipeline.root

    @property
    def names(self) -> list[str]:
        """Paths of the recipes."""
        return [run.recipe.path for run in self.pipeline.runs]

    @property
    def prepared(self) -> bool:
        return all(data.prepared for data in self.pipeline.data.values())

    def prepare(self) -> None:
        look_ahead(self.pipeline)
        prepare_data(self.pipeline)

    def steps(self, name: str) -> list[Step]:
        (run,) = (run for run in self.pipeline.runs if run.recipe.path == name)
        return self.pipeline.steps(run)

    def report(self) -> None:
        run_step(self.pipeline.report())
        print_outcome(self.pipeline, self.items)


def prepare_data(pipeline: Pipeline) -> bool:
    """Prepare the texts; returns whether there was anything to do."""
    ran = False
    for data in pipeline.data.values():
        for step in data.steps():
            ran |= run_step(step)
    return ran


def do_all(pipeline: Pipeline) -> bool:
    """Run every step that is not done; returns whether there was any."""
    look_ahead(pipeline)
    ran = prepare_data(pipeline)
    chains = [(run.recipe.path, pipeline.steps(run)) for run in pipeline.runs]
    if pipeline.machine and pipeline.machine.cpu and pipeline.scale is MINI:
        print_estimate(pipeline)
    ran |= run_chains(chains, pipeline.parallel)
    return ran | run_step(pipeline.report())


def print_estimate(pipeline: Pipeline) -> None:
    """How long the runs will take, unless they are done."""
    from .estimate import duration, estimate

    if seconds := estimate(pipeline):
        print(f"Estimated time, measured on this machine: {duration(seconds)}.", flush=True)


def look_ahead(pipeline: Pipeline) -> None:
    """Check texts, GPUs, folders and disk space before any work.

    Raises:
        BadInput: something would fail later.
    """
    peaks = []
    for data in pipeline.data.values():
        prepare = next(data.steps())
        if not prepare.done():
            check(data.source)
            prepare.check()
            peaks.append(costs.preparation_bytes(data.source.corpus, data.source.path))
    needed = costs.one_after_another(peaks)
    for run in pipeline.runs:
        steps, training = pipeline.steps(run), pipeline.training(run)
        if all(step.done() for step in steps):
            continue
        if training.data.prepared:
            for step in steps:
                if not step.done():
                    step.check()
        most = costs.checkpoint_bytes(training.recipe, len(pipeline.stops(run)) - 1)
        needed += max(0, most - costs.folder_bytes(training.folder))
    check_disk(pipeline.root, needed, "The remaining work", "--work-dir")
