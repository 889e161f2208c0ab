"""Commands for the runs of the paper: ``alibi-fairseq launch``, ``reproduce``, and ``models``."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..errors import UserInputError
from ..paper import tables
from ..paper.datasets import PaperDataset
from ..paper.recipe import CORPORA, find_recipe, flags
from ..paper.reproduction import DeviceConfig, ReproductionExperiment
from ..paper.scale import SCALES
from ..runs import torchrun
from ..runs.execution import execute
from ..runs.run import ALIBI
from .experiments import ExperimentOptions
from .options import CliCommand, option

NO_GPU = "This machine has no GPU. Pass --cpu N for N processes on the CPU."


def selected_devices(gpus: int | None, cpu: int | None) -> DeviceConfig | None:
    """Return the devices that ``--gpus`` or ``--cpu`` selects; None without either."""
    if gpus is not None and cpu is not None:
        raise UserInputError("--gpus and --cpu are mutually exclusive. Pass one.")
    if gpus is not None:
        return DeviceConfig(gpus)
    if cpu is not None:
        return DeviceConfig(cpu, cpu=True)
    return None


@dataclass
class Launch(CliCommand):
    """Options of ``alibi-fairseq launch``, which trains a recipe on any number of GPUs or nodes."""

    recipe: str = option(
        "recipe of the paper (configs/), for example wikitext-103/alibi-512", metavar="RECIPE"
    )
    data: str = option("data folder (data-bin), or several joined by ':'", metavar="DATA")
    flags: list[str] = option(
        "further options of fairseq-train, such as --save-dir FOLDER, which is required",
        nargs=argparse.REMAINDER,
    )
    gpus: int | None = option("number of GPUs across all nodes (default: all)", None, metavar="N")
    cpu: int | None = option(
        "number of CPU processes across all nodes, instead of GPUs", None, metavar="N"
    )
    nnodes: int = option("number of nodes; run this command once on each", 1, metavar="N")
    rdzv_endpoint: str | None = option(
        "name of the first node and a free port on it, the same on all nodes",
        None,
        metavar="HOST:PORT",
    )
    rdzv_id: str = option("job name, the same on all nodes", "alibi", metavar="NAME")
    max_restarts: int = option("number of restarts after a failure", 0, metavar="N")
    dry_run: bool = option("print the command, and execute nothing", False)

    def __call__(self) -> int:
        """Train; return the exit code of the training, 75 if a signal stopped it.

        Raises:
            UserInputError: an option cannot be used, or a required one is missing.
        """
        from fairseq import options

        reject_nested_launchers(os.environ, self.nnodes)
        recipe = find_recipe(self.recipe)
        devices = selected_devices(self.gpus, self.cpu)
        if devices is None:
            gpu_count = torch.cuda.device_count()
            if not gpu_count:
                raise UserInputError(NO_GPU)
            devices = DeviceConfig(gpu_count * self.nnodes)
        train = [self.data, *flags(recipe.settings(devices.processes, devices.cpu)), *self.flags]
        launcher = torchrun.arguments(
            devices.processes, self.nnodes, self.rdzv_endpoint, self.rdzv_id, self.max_restarts
        )
        parser = options.get_training_parser()
        parser.set_defaults(save_dir=None)
        args = options.parse_args_and_arch(
            parser, train
        )  # rejects bad options before a process starts
        if recipe.starts_from_another and not args.finetune_from_model:
            raise UserInputError(
                f"{recipe.path} continues the training of a model. "
                "Pass --finetune-from-model CHECKPOINT after the data folder."
            )
        if not args.save_dir:
            raise UserInputError(
                "A folder for the checkpoints is required. "
                "Pass --save-dir FOLDER after the data folder."
            )
        command = [ALIBI[0], *launcher, *ALIBI[1:], "train", *train]
        if self.dry_run:
            print(shlex.join(command))
            return 0
        return execute(command)


def reject_nested_launchers(environment: Mapping[str, str], nodes: int) -> None:
    """Reject launchers of which each would start the whole run."""
    if "TORCHELASTIC_RUN_ID" in environment or "RANK" in environment:
        raise UserInputError(
            "`alibi-fairseq launch` starts torchrun itself. Run it without torchrun."
        )
    tasks = int(environment.get("SLURM_STEP_NUM_TASKS", nodes))
    if tasks != nodes:
        raise UserInputError(
            f"srun started {tasks} launchers with --nnodes {nodes}, "
            "and each would start a whole run. "
            "Pass --ntasks-per-node=1 to srun, and --nnodes with the number of nodes."
        )


def corpus_option(help: str) -> Any:
    """Return the field of an option ``--corpus NAME=PATH``."""
    return option(f"{help} (repeatable)", (), action="append", metavar="NAME=PATH")


def corpus_paths(given: Sequence[str], known: Iterable[str]) -> dict[str, Path]:
    """Return the values ``NAME=PATH`` of ``--corpus`` as paths by name.

    Raises:
        UserInputError: a name is unknown, or a path does not exist.
    """
    paths = {}
    for text in given:
        name, _, path = text.partition("=")
        if name not in known or not path:
            raise UserInputError(
                f"--corpus takes NAME=PATH with one of the names {', '.join(known)}, not '{text}'."
            )
        paths[name] = Path(path)
        if not paths[name].exists():
            raise UserInputError(
                f"--corpus {text} does not exist. Pass an existing file or folder."
            )
    return paths


@dataclass(kw_only=True)
class Reproduce(ExperimentOptions):
    """Options of ``alibi-fairseq reproduce``, which reproduces a table or figure of the paper."""

    name: str = option("table or figure, for example table5 or figure1", metavar="TABLE|FIGURE|all")
    corpus: list[str] = corpus_option(
        "text of a corpus: NAME is wikitext-103, bookcorpus, or cc100-roberta, and PATH a file or "
        "a folder"
    )
    allow_other_text: bool = option(
        "accept texts other than the paper's; results then have names of their own", False
    )
    scale: str = option(
        "size of the runs; "
        + "; ".join(f"{name}: {scale.caveat}" for name, scale in SCALES.items()),
        "paper",
        choices=list(SCALES),
    )
    gpus: int | None = option("GPUs per run (default: all; small scales: one)", None, metavar="N")
    cpu: int | None = option("CPU processes per run, instead of GPUs", None, metavar="N")
    out: Path = option(
        "output folder, with a subfolder per scale", Path("runs/reproduce"), metavar="FOLDER"
    )

    def __call__(self) -> int:
        """Run what the table or figure needs; return the exit code.

        Raises:
            UserInputError: an option cannot be used, or a corpus is missing.
        """
        items = tables.find_items(self.name)
        trainings = tables.trainings_for(items)
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
        experiment = ReproductionExperiment(folder, items, trainings, data, scale, self.devices())
        return self.run_experiment(experiment)

    def devices(self) -> DeviceConfig | None:
        """Return the devices of one run; None for a dry run without --gpus or --cpu.

        Raises:
            UserInputError: this machine has fewer GPUs than needed, or ``--slurm`` lacks resources.
        """
        devices = selected_devices(self.gpus, self.cpu)
        gpu_count = torch.cuda.device_count()
        runs_locally = not (self.slurm or self.dry_run or self.job)
        if devices:
            if runs_locally and not devices.cpu and devices.processes > gpu_count:
                raise UserInputError(
                    f"--gpus {self.gpus} exceeds the {gpu_count} GPUs of this machine. "
                    "Pass a smaller number, or --cpu N."
                )
            return devices
        if self.slurm:
            raise UserInputError("--slurm requires resources per run. Pass --gpus N or --cpu N.")
        if self.dry_run:
            return None
        if self.scale != "paper":
            return DeviceConfig(1, cpu=not gpu_count)
        if not gpu_count:
            raise UserInputError(NO_GPU)
        return DeviceConfig(gpu_count)
