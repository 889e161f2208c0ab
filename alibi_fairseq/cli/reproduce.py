"""Command ``alibi-fairseq reproduce``: a table or figure of the paper, from text to report."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import UserInputError
from ..experiment.nodes import check_reaches_other_nodes
from ..options import option, positive_integer
from ..paper.datasets import PaperDataset
from ..paper.items import find_items
from ..paper.recipe import CORPORA
from ..paper.reproduction import DeviceConfig, ReproductionExperiment, require_gpus
from ..paper.scale import SCALES
from ..paper.trainings import trainings_for
from .experiments import ExperimentOptions, corpus_paths
from .train_recipe import ON_80GB_HELP


def corpus_option(help: str) -> Any:
    """Return the field of an option ``--corpus NAME=PATH``."""
    return option(f"{help} (repeatable)", (), action="append", metavar="NAME=PATH")


@dataclass(kw_only=True)
class Reproduce(ExperimentOptions):
    """Options of ``alibi-fairseq reproduce``, which reproduces a table or figure of the paper."""

    name: str = option("table or figure, for example table5 or figure1", metavar="TABLE|FIGURE|all")
    corpus: list[str] = corpus_option(
        "text of a corpus: NAME is wikitext-103, bookcorpus, or cc100-roberta, and PATH a file or "
        "a folder"
    )
    allow_other_text: bool = option(
        "accept texts other than the paper's; their results get names of their own", False
    )
    scale: str = option(
        "size of the runs; "
        + "; ".join(f"{name}: {scale.caveat}" for name, scale in SCALES.items()),
        "paper",
        choices=list(SCALES),
    )
    gpus: int | None = option(
        "GPUs per run, on all nodes together (default: all; small scales: one)",
        None,
        type=positive_integer,
    )
    cpu: int | None = option("CPU processes per run, instead of GPUs", None, type=positive_integer)
    nodes: int = option(
        "nodes per run, among which its GPUs are divided (docs/slurm.md)",
        1,
        type=positive_integer,
        metavar="N",
    )
    on_80gb: bool = option(ON_80GB_HELP, False, flag="--80gb")
    out: Path = option(
        "output folder, with a subfolder per scale", Path("runs/reproduce"), metavar="FOLDER"
    )

    def __call__(self) -> int:
        """Run what the table or figure needs; return the exit code.

        Raises:
            UserInputError: an option cannot be used, or a corpus is missing.
        """
        items = find_items(self.name)
        trainings = trainings_for(items)
        paths = corpus_paths(self.corpus, CORPORA)
        needed = dict.fromkeys(training.recipe.corpus for training in trainings)
        missing = [name for name in needed if name not in paths]
        if missing and not self.dry_run:
            flags = " ".join(f"--corpus {name}=PATH" for name in missing)
            raise UserInputError(
                f"Missing corpus {' and '.join(missing)}. Pass {flags} "
                f"(data-prep/{missing[0]}/README.md describes how to obtain it)."
            )
        folder = self.out / self.scale
        scale = SCALES[self.scale]
        data = {}
        for name in needed:
            path = paths.get(name, Path(name.upper()))
            data[name] = PaperDataset(folder / "data", name, path, self.allow_other_text, scale)
        experiment = ReproductionExperiment(
            folder, items, trainings, data, scale, self.devices(), self.on_80gb
        )
        return self.run_experiment(experiment)

    def devices(self) -> DeviceConfig | None:
        """Return the devices of one run; None for a dry run without --gpus or --cpu.

        Raises:
            UserInputError: this machine has fewer GPUs than needed, or ``--slurm`` lacks resources.
        """
        import torch

        devices = DeviceConfig.from_options(self.gpus, self.cpu, self.nodes)
        gpu_count = torch.cuda.device_count()
        runs_locally = not (self.slurm or self.dry_run or self.job)
        if devices:
            if runs_locally and devices.nodes > 1:
                check_reaches_other_nodes(devices.nodes)
            if runs_locally and not devices.cpu and devices.processes_per_node > gpu_count:
                per_node = f" on {self.nodes} nodes" if self.nodes > 1 else ""
                raise UserInputError(
                    f"--gpus {self.gpus}{per_node} exceeds the {gpu_count} GPUs of this machine. "
                    "Pass a smaller number, or --cpu N."
                )
            return devices
        if self.nodes > 1:
            raise UserInputError("--nodes requires --gpus N or --cpu N, for all nodes together.")
        if self.slurm:
            raise UserInputError("--slurm requires resources per run. Pass --gpus N or --cpu N.")
        if self.dry_run:
            return None
        if self.scale != "paper":
            return DeviceConfig(1, cpu=not gpu_count)
        return DeviceConfig(require_gpus())
