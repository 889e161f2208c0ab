"""Command ``alibi-fairseq train --recipe NAME``: a run of ``configs/`` on any number of GPUs."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from ..errors import FOLDER, PROGRAM, UserInputError
from ..experiment import nodes, torchrun
from ..experiment.stoppable_command import execute_command
from ..options import option, positive_integer
from ..paper.recipe import Recipe, find_recipe, flags, for_80gb
from ..paper.reproduction import DeviceConfig, require_gpus
from ..paper.scale import SCALES
from .options import Parser, add_fields, fill_dataclass
from .training_options import OwnTrainingOptions

ON_80GB_HELP = "adapt recipes to cards with 80 GB: bf16 and larger passes (configs/README.md)"


@dataclass
class TrainRecipe:
    """Options of ``alibi-fairseq train --recipe``.

    Attributes:
        arguments: data folder and options that it passes to ``fairseq-train``.
        keep_at: updates of ``--keep-at``, an option of all trainings.
    """

    arguments: list[str]
    keep_at: list[int]
    recipe: str = option(
        "recipe of configs/, such as wikitext-103/alibi-512", metavar="NAME", required=True
    )
    gpus: int | None = option(
        "number of GPUs across all nodes (default: all)", None, type=positive_integer
    )
    cpu: int | None = option(
        "number of CPU processes across all nodes, instead of GPUs", None, type=positive_integer
    )
    nodes: int = option("number of nodes; run this command once on each", 1, type=positive_integer)
    rdzv_endpoint: str | None = option(
        "name of the first node and a free port on it, the same on all nodes",
        None,
        metavar="HOST:PORT",
    )
    rdzv_id: str = option("job name, the same on all nodes", "alibi", metavar="NAME")
    max_restarts: int = option("number of restarts after a failure", 0)
    on_80gb: bool = option(ON_80GB_HELP, False, flag="--80gb")
    scale: str = option("size of the run (docs/reproduce.md)", "paper", choices=list(SCALES))
    dry_run: bool = option("print the fairseq command, and execute nothing", False)

    def __call__(self) -> int:
        """Train; return the exit code of the training, 75 if a signal stopped it.

        Raises:
            UserInputError: an option cannot be used, or a required one is missing.
        """
        reject_nested_launchers(os.environ, self.nodes)
        if self.max_restarts:
            reject_repeated_resets(self.arguments)
        recipe = find_recipe(self.recipe)
        if self.on_80gb:
            recipe = for_80gb(recipe)
        recipe = SCALES[self.scale].scale_recipe(recipe)
        devices = DeviceConfig.from_options(self.gpus, self.cpu, self.nodes)
        if devices is None and self.dry_run:
            devices = DeviceConfig(recipe.batch.gpus, nodes=self.nodes)
        if devices is None:
            devices = DeviceConfig(require_gpus() * self.nodes, nodes=self.nodes)
        settings = recipe.settings(devices.processes, devices.cpu)
        train = [*flags(settings), *self.arguments]
        keep_at = ",".join(map(str, self.keep_at))
        launcher = torchrun.launcher_flags(
            devices.processes, self.nodes, self.rdzv_endpoint, self.rdzv_id, self.max_restarts
        )
        check_options(train, recipe, self.keep_at)
        if self.dry_run:
            from ..plugin.kept_checkpoints import KEEP_AT  # imports fairseq

            variables = [f"{KEEP_AT}={keep_at}"] if keep_at else []
            print(shlex.join([*variables, *self.plain_command(devices, launcher), *train]))
            return 0
        if keep_at:
            train += ["--keep-at", keep_at]
        return execute_command([*nodes.program(launcher, nodes=1), "train", *train])

    def plain_command(self, devices: DeviceConfig, launcher: list[str]) -> list[str]:
        """Return the start of the same command without ``alibi-fairseq``.

        fairseq itself starts a process for each GPU of one node. It leaves other processes to
        torchrun.
        """
        command = ["fairseq-train"]
        if launcher and (devices.cpu or devices.nodes > 1 or self.max_restarts):
            torchrun_options = launcher[launcher.index(torchrun.MODULE) + 1 :]
            command = ["torchrun", *torchrun_options, "-m", "fairseq_cli.train"]
        names = [argument.partition("=")[0] for argument in self.arguments]
        if "--user-dir" not in names:
            command += ["--user-dir", str(FOLDER)]
        return command


def check_options(train: list[str], recipe: Recipe, keep_at: list[int]) -> None:
    """Reject bad options of ``fairseq-train``, and missing ones, before a process starts.

    Options may change the tokens per update of the recipe on purpose, so this is only a warning.

    Args:
        train: all options of ``fairseq-train``.
        recipe: the recipe that has most of them.
        keep_at: updates after which the training keeps a checkpoint.
    """
    from fairseq import options

    from ..plugin.kept_checkpoints import check_kept_updates
    from ..plugin.segment_language_modeling import rows_per_process

    parser = options.get_training_parser()
    parser.set_defaults(save_dir=None)
    args = options.parse_args_and_arch(parser, train)
    if recipe.starts_from and not args.finetune_from_model:
        raise UserInputError(
            f"{recipe.path} continues a run of {recipe.starts_from}. "
            "Pass --finetune-from-model CHECKPOINT."
        )
    if not args.save_dir:
        raise UserInputError("A folder for the checkpoints is required. Pass --save-dir FOLDER.")
    check_kept_updates(
        frozenset(keep_at),
        args.max_update,
        args.validate_after_updates,
        args.no_save,
        args.no_last_checkpoints,
    )
    sequences = rows_per_process(
        args.tokens_per_sample,
        args.max_tokens,
        args.batch_size,
        args.required_batch_size_multiple,
    )
    passes = args.distributed_world_size * args.update_freq[0]
    tokens = args.tokens_per_sample * sequences * passes
    expected = recipe.batch.tokens_per_update
    if tokens != expected:
        print(
            f"{PROGRAM}: warning: an update has {tokens:,} tokens with these options, and "
            f"{expected:,} in {recipe.path}",
            file=sys.stderr,
        )


def reject_nested_launchers(environment: Mapping[str, str], nodes: int) -> None:
    """Reject launchers whose processes would each start the whole run."""
    tasks = int(environment.get("SLURM_STEP_NUM_TASKS", nodes))
    if "TORCHELASTIC_RUN_ID" in environment or "RANK" in environment or tasks != nodes:
        raise UserInputError(
            "`alibi-fairseq train --recipe` was itself started several times, so each copy would "
            "start a full run. Don't wrap it in torchrun. Under srun, use --ntasks-per-node=1 and "
            "pass --nodes."
        )


def reject_repeated_resets(arguments: list[str]) -> None:
    """Reject options that would discard progress again whenever torchrun restarts the training."""
    for argument in arguments:
        name = argument.partition("=")[0]
        if name == "--restore-file" or name.startswith("--reset-"):
            raise UserInputError(
                f"{name} would apply again after each restart. Train with it, but without "
                "--max-restarts, until a checkpoint is saved, then rerun the command without it."
            )


def make_parser() -> Parser:
    """Return the parser of the options of :class:`TrainRecipe`."""
    parser = Parser(
        prog=f"{PROGRAM} train",
        usage="%(prog)s --recipe NAME DATA --save-dir FOLDER [options]",
        description="Train a recipe of configs/ on any number of GPUs or nodes. DATA is a data "
        "folder (data-bin), or several joined by ':'. Options of fairseq-train override the "
        "recipe.",
        allow_abbrev=False,
    )
    add_fields(parser, TrainRecipe)
    add_fields(parser, OwnTrainingOptions)
    return parser


def run(arguments: list[str]) -> int:
    """Train a recipe with the arguments after ``train``; return the exit code."""
    parser = make_parser()
    sys.argv = [parser.prog, *arguments]  # fairseq reads --user-dir there
    args, fairseq_arguments = parser.parse_known_args(arguments)
    args.arguments = fairseq_arguments
    command = fill_dataclass(TrainRecipe, args)
    return command()
