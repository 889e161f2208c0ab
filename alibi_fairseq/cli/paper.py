"""The paper's runs: ``alibi-fairseq launch`` trains one of them, on this machine or as one node of several;
``reproduce`` makes a table or figure, from the text to the report; ``models`` lists the models there are.
"""

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
from ..paper.recipe import CORPORA, SCALES, find_recipe, flags
from ..paper.reproduction import DeviceConfig, ReproductionExperiment
from ..positions import METHODS
from ..reporting import markdown
from ..runs import torchrun
from ..runs.child_process import execute
from ..runs.run import ALIBI
from .experiments import ExperimentOptions
from .options import CliCommand, option

NO_GPU = "There is no GPU here; use --cpu N for N processes on the CPU."


def given_machine(gpus: int | None, cpu: int | None) -> DeviceConfig | None:
    """What ``--gpus`` or ``--cpu`` asks for; None without them."""
    if cpu is None:
        return None if gpus is None else DeviceConfig(gpus)
    if gpus is not None:
        raise UserInputError("Choose one of --gpus and --cpu.")
    return DeviceConfig(cpu, cpu=True)


@dataclass
class Launch(CliCommand):
    """A training of the paper on any number of GPUs or nodes."""

    recipe: str = option("e.g. wikitext-103/alibi-512", metavar="RECIPE")
    data: str = option("data-bin folder, or several joined by ':'", metavar="DATA")
    flags: list[str] = option(
        "further flags of fairseq-train, with --save-dir", nargs=argparse.REMAINDER
    )
    gpus: int | None = option("total over all nodes (default: all)", None, metavar="N")
    cpu: int | None = option(
        "N processes on the CPU instead, total over all nodes", None, metavar="N"
    )
    nnodes: int = option("run this command once on each node", 1, metavar="N")
    rdzv_endpoint: str | None = option(
        "first node and a free port on it", None, metavar="HOST:PORT"
    )
    rdzv_id: str = option("name of the job, the same on all nodes", "alibi", metavar="NAME")
    max_restarts: int = option("number of restarts after a failure", 0, metavar="N")
    dry_run: bool = option("print the command and exit", False)

    def __call__(self) -> int:
        """Returns the training's exit code; 75 if it saved and stopped because of a signal."""
        from fairseq import options

        refuse_being_one_of_many(os.environ, self.nnodes)
        recipe, machine = find_recipe(self.recipe), given_machine(self.gpus, self.cpu)
        if machine is None:
            if not (there := torch.cuda.device_count()):
                raise UserInputError(NO_GPU)
            machine = DeviceConfig(there * self.nnodes)
        train = [self.data, *flags(recipe.settings(machine.processes, machine.cpu)), *self.flags]
        several = torchrun.arguments(
            machine.processes, self.nnodes, self.rdzv_endpoint, self.rdzv_id, self.max_restarts
        )
        parser = options.get_training_parser()
        parser.set_defaults(save_dir=None)
        args = options.parse_args_and_arch(parser, train)  # before any process is started
        if recipe.starts_from_another and not args.finetune_from_model:
            raise UserInputError(
                f"{recipe.path} goes on with a trained model: name its checkpoint with "
                "--finetune-from-model behind the data folder."
            )
        if not args.save_dir:
            raise UserInputError(
                "Name a folder for the checkpoints: --save-dir DIR behind the data folder."
            )
        command = [ALIBI[0], *several, *ALIBI[1:], "train", *train]
        if self.dry_run:
            print(shlex.join(command))
            return 0
        return execute(command)


def refuse_being_one_of_many(environment: Mapping[str, str], nodes: int) -> None:
    """Refuse several launchers of which each would start the whole run."""
    if "TORCHELASTIC_RUN_ID" in environment or "RANK" in environment:
        raise UserInputError("The launcher starts torchrun itself; start it without torchrun.")
    tasks = int(environment.get("SLURM_STEP_NUM_TASKS", nodes))
    if tasks != nodes:
        raise UserInputError(
            f"srun started {tasks} launchers for {nodes} node{'s' if nodes > 1 else ''}, and each "
            "would start a whole run; use srun --ntasks-per-node=1, and --nnodes with the number "
            "of nodes."
        )


def corpus_option(help: str) -> Any:
    return option(f"{help} (repeatable)", (), action="append", metavar="NAME=PATH")


def corpus_paths(given: Sequence[str], known: Iterable[str]) -> dict[str, Path]:
    """The values ``NAME=PATH`` of ``--corpus`` as paths by name."""
    found = {}
    for text in given:
        name, _, path = text.partition("=")
        if name not in known or not path:
            raise UserInputError(
                f"--corpus takes NAME=PATH with one of the names {', '.join(known)}, not '{text}'."
            )
        found[name] = Path(path)
        if not found[name].exists():
            raise UserInputError(f"--corpus {text}: there is no such file or folder.")
    return found


@dataclass(kw_only=True)
class Reproduce(ExperimentOptions):
    """A table or figure of the paper."""

    name: str = option("e.g. table5, figure1", metavar="TABLE|FIGURE|all")
    corpus: list[str] = corpus_option(
        "text of wikitext-103, bookcorpus or cc100-roberta: a file or a folder"
    )
    allow_other_text: bool = option(
        "accept texts that are not the paper's, under their own names", False
    )
    scale: str = option(
        "; ".join(f"{name}: {scale.caveat}" for name, scale in SCALES.items()),
        "paper",
        choices=list(SCALES),
    )
    gpus: int | None = option(
        "of each run (default: all; of a small scale one, if there is any)", None
    )
    cpu: int | None = option("N processes on the CPU instead", None, metavar="N")
    work_dir: Path = option(
        "for everything, with a folder per scale", Path("runs/reproduce"), metavar="FOLDER"
    )

    def __call__(self) -> int:
        items = tables.find_items(self.name)
        trainings = tables.trainings_for(items)
        paths = corpus_paths(self.corpus, CORPORA)
        needed = dict.fromkeys(training.recipe.corpus for training in trainings)
        missing = [name for name in needed if name not in paths]
        if missing and not self.dry_run:
            flags = " ".join(f"--corpus {name}=PATH" for name in missing)
            raise UserInputError(
                f"The text of {' and '.join(missing)} is needed; give it with {flags} "
                f"(data-prep/{missing[0]}/README.md says how to get it)."
            )
        folder, scale = self.work_dir / self.scale, SCALES[self.scale]
        data = {}
        for name in needed:
            path = paths.get(name, Path(name.upper()))
            data[name] = PaperDataset(folder / "data", name, path, self.allow_other_text, scale)
        experiment = ReproductionExperiment(folder, items, trainings, data, scale, self.machine())
        return self.run_experiment(experiment)

    def machine(self) -> DeviceConfig | None:
        """The machine of one run; None for a dry run without --gpus or --cpu."""
        machine, there = given_machine(self.gpus, self.cpu), torch.cuda.device_count()
        here = not (self.slurm or self.dry_run or self.job)
        if machine and machine.processes > there and here and not machine.cpu:
            raise UserInputError(
                f"--gpus {self.gpus}, but there are {there} GPUs here; --cpu N needs none."
            )
        if machine or (self.dry_run and not self.slurm):
            return machine
        if self.slurm:
            raise UserInputError(
                "--slurm: what does each run get? Give --gpus N, or --cpu N processes."
            )
        if self.scale != "paper":
            return DeviceConfig(1, cpu=not there)
        if not there:
            raise UserInputError(NO_GPU)
        return DeviceConfig(there)


@dataclass
class Models(CliCommand):
    """The registered models of this project or a plugin with their sizes, and the position methods."""

    def __call__(self) -> None:
        from fairseq.models import MODEL_REGISTRY

        from ..models import AlibiLanguageModel

        kinds = {
            name: model.config()
            for name, model in MODEL_REGISTRY.items()
            if issubclass(model, AlibiLanguageModel)
        }
        headers = ["--arch", "layers", "width", "heads", "FFN", "parameters", "embeddings"]
        rows = []
        for name, config in sorted(kinds.items(), key=lambda each: layer_parameters(each[1])):
            size = (config.decoder_layers, config.decoder_embed_dim, config.decoder_attention_heads)
            parameters = f"{layer_parameters(config) / 1e6:,.1f}M"
            kind = "adaptive" if config.adaptive_input else "tied"
            rows.append(
                [name, *map(str, size), str(config.decoder_ffn_embed_dim), parameters, kind]
            )
        print(markdown.table(headers, rows))
        print("parameters: of the layers; token embeddings come on top, width × dictionary entries")
        print(f"--position-method: {', '.join(METHODS)}")


def layer_parameters(config) -> int:
    """Parameters of all layers: attention, feed-forward network and two norms each."""
    width, inner = config.decoder_embed_dim, config.decoder_ffn_embed_dim
    attention = 4 * (width * width + width)
    feed_forward = 2 * width * inner + inner + width
    return config.decoder_layers * (attention + feed_forward + 4 * width)
