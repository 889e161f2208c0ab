"""``alibi-fairseq launch``: train a recipe on this machine, or as one node of several; ``models``: of what size."""

from __future__ import annotations

import argparse
import os
import shlex
from dataclasses import dataclass
from pathlib import Path

import torch
from fairseq import options as fairseq_options
from fairseq.models import MODEL_REGISTRY

from ..errors import BadInput
from ..experiments.command import execute
from ..experiments.run import ALIBI, has_reached
from ..experiments.torchrun import Machine, launcher_flags, refuse_being_one_of_many, train_flags
from ..models import AlibiLanguageModel
from ..paper.recipe import find_recipe
from ..positions import METHODS
from .options import Verb, aligned, option


@dataclass
class Launch(Verb):
    """A training of the paper on any number of GPUs or nodes."""

    recipe: str = option("e.g. wikitext-103/alibi-512", metavar="RECIPE")
    data: str = option("data-bin folder, or several joined by ':'", metavar="DATA")
    flags: list[str] = option("further flags of fairseq-train", nargs=argparse.REMAINDER)
    gpus: int | None = option("total over all nodes (default: all)", None, metavar="N")
    cpu: int | None = option(
        "N processes on the CPU instead, total over all nodes", None, metavar="N"
    )
    nnodes: int = option("run this command once on each node", 1, metavar="N")
    rdzv_endpoint: str | None = option(
        "first node and a free port on it", None, metavar="HOST:PORT"
    )
    rdzv_id: str = option("name of the job, the same on all nodes", "alibi", metavar="NAME")
    max_restarts: int = option("number of restarts after a failure", 3, metavar="N")
    dry_run: bool = option("print the command and exit", False)

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        parser.usage = (
            "alibi-fairseq launch [--gpus N | --cpu N] [--nnodes N --rdzv-endpoint HOST:PORT] "
            "RECIPE DATA --save-dir DIR [fairseq-train flags]"
        )
        super().add_arguments(parser)

    def __call__(self) -> int:
        """Returns the training's exit code; 75 if it saved and stopped because of a signal."""
        refuse_being_one_of_many(os.environ, self.nnodes)
        recipe, where = find_recipe(self.recipe), self.machine()
        train = [self.data, *train_flags(recipe, where), *self.flags]
        python, *module = ALIBI
        command = [python, *launcher_flags(where, self.max_restarts), *module, "train", *train]
        if recipe.starts_from_another and self.flag("--finetune-from-model") is None:
            raise BadInput(
                f"{recipe.path} goes on with a trained model: name its checkpoint with "
                "--finetune-from-model behind the data folder."
            )
        if (save_dir := self.flag("--save-dir")) is None:
            raise BadInput(
                "Name a folder for the checkpoints: --save-dir DIR behind the data folder."
            )
        for folder in self.data.split(os.pathsep):
            if not (Path(folder) / "dict.txt").is_file():
                raise BadInput(
                    f"There is no prepared data in {folder} (no dict.txt); see data-prep/README.md."
                )
        # A wrong flag is found before any process is started.
        fairseq_options.parse_args_and_arch(fairseq_options.get_training_parser(), train)
        if self.dry_run:
            print(shlex.join(command))
            return 0
        updates = int(self.flag("--max-update") or recipe.updates)
        if has_reached(save_dir, updates):
            print(f"{save_dir} has reached {updates:,} updates; nothing to do.")
            return 0
        return execute(command)

    def machine(self) -> Machine:
        if self.cpu is not None and self.gpus is not None:
            raise BadInput("Choose one of --gpus and --cpu.")
        processes = self.gpus if self.cpu is None else self.cpu
        if processes is None and not (processes := torch.cuda.device_count() * self.nnodes):
            raise BadInput("There is no GPU here; use --cpu N for N processes on the CPU.")
        on_cpu = self.cpu is not None
        return Machine(processes, on_cpu, self.nnodes, self.rdzv_endpoint, self.rdzv_id)

    def flag(self, name: str) -> str | None:
        """The value of the last ``--name VALUE`` or ``--name=VALUE`` among the training's flags."""
        parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        parser.add_argument(name, dest="value")
        return parser.parse_known_args(self.flags)[0].value


@dataclass
class Models(Verb):
    """The registered models of this project or a plugin with their sizes, and the position methods."""

    def __call__(self) -> None:
        kinds = {
            name: model.config()
            for name, model in MODEL_REGISTRY.items()
            if issubclass(model, AlibiLanguageModel)
        }
        rows = [("--arch", "layers", "width", "heads", "FFN", "parameters", "embeddings")]
        for name, config in sorted(kinds.items(), key=lambda each: layer_parameters(each[1])):
            size = (config.decoder_layers, config.decoder_embed_dim, config.decoder_attention_heads)
            parameters = f"{layer_parameters(config) / 1e6:,.1f}M"
            kind = "adaptive" if config.adaptive_input else "tied"
            rows.append(
                (name, *map(str, size), str(config.decoder_ffn_embed_dim), parameters, kind)
            )
        print("\n".join(aligned(rows, str.ljust)))
        print(
            "\nparameters: of the layers; token embeddings come on top, width × dictionary entries"
        )
        print(f"--position-method: {', '.join(METHODS)}")


def layer_parameters(config) -> int:
    """Parameters of all layers: attention, feed-forward network and two norms each."""
    width, inner = config.decoder_embed_dim, config.decoder_ffn_embed_dim
    attention = 4 * (width * width + width)
    feed_forward = 2 * width * inner + inner + width
    return config.decoder_layers * (attention + feed_forward + 4 * width)
