"""Command ``alibi-fairseq launch``: a recipe of ``configs/`` on any number of GPUs or nodes."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from ..errors import UserInputError
from ..paper.recipe import find_recipe, flags, with_run_config
from ..paper.reproduction import DeviceConfig, require_gpus
from ..runs import torchrun
from ..runs.child_process import ALIBI
from ..runs.execution import execute_command
from .options import CliCommand, option

RUN_CONFIG_HELP = (
    "overlay of configs/CORPUS/run_config, such as 80gb for cards with 80 GB (configs/README.md)"
)


@dataclass
class Launch(CliCommand):
    """Options of ``alibi-fairseq launch``, which trains a recipe on any number of GPUs or nodes."""

    recipe: str = option("recipe of configs/, for example wikitext-103/alibi-512", metavar="RECIPE")
    data: str = option("data folder (data-bin), or several joined by ':'", metavar="DATA")
    flags: list[str] = option(
        "further options of fairseq-train, such as --save-dir FOLDER, which is required",
        nargs=argparse.REMAINDER,
    )
    gpus: int | None = option("number of GPUs across all nodes (default: all)", None, metavar="N")
    cpu: int | None = option(
        "number of CPU processes across all nodes, instead of GPUs", None, metavar="N"
    )
    run_config: str | None = option(RUN_CONFIG_HELP, None, metavar="NAME")
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
        if self.run_config:
            recipe = with_run_config(recipe, self.run_config)
        devices = DeviceConfig.from_options(self.gpus, self.cpu)
        if devices is None:
            devices = DeviceConfig(require_gpus() * self.nnodes)
        train = [self.data, *flags(recipe.settings(devices.processes, devices.cpu)), *self.flags]
        launcher = torchrun.launcher_flags(
            devices.processes, self.nnodes, self.rdzv_endpoint, self.rdzv_id, self.max_restarts
        )
        parser = options.get_training_parser()
        parser.set_defaults(save_dir=None)
        # This rejects bad options before a process starts.
        args = options.parse_args_and_arch(parser, train)
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
        return execute_command(command)


def reject_nested_launchers(environment: Mapping[str, str], nodes: int) -> None:
    """Reject launchers whose processes would each start the whole run."""
    tasks = int(environment.get("SLURM_STEP_NUM_TASKS", nodes))
    if "TORCHELASTIC_RUN_ID" in environment or "RANK" in environment or tasks != nodes:
        raise UserInputError(
            "`alibi-fairseq launch` starts the processes of a node itself, and here several "
            "launchers would each start a whole run. Run it without torchrun; with srun, pass "
            "--ntasks-per-node=1, and --nnodes with the number of nodes."
        )
