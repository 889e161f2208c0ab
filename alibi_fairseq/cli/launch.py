"""``alibi-fairseq launch``: train a recipe on this machine, or as one node of several."""

from __future__ import annotations

import argparse
import os
import shlex
from pathlib import Path

from ..errors import BadInput


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "alibi-fairseq launch [--gpus N | --cpu N] [--nnodes N --rdzv-endpoint HOST:PORT] "
        "RECIPE DATA --save-dir DIR [fairseq-train flags]"
    )
    parser.add_argument("--gpus", type=int, metavar="N", help="total over all nodes (default: all)")
    parser.add_argument(
        "--cpu", type=int, metavar="N", help="N processes on the CPU instead, total over all nodes"
    )
    parser.add_argument(
        "--nnodes", type=int, default=1, metavar="N", help="run this command once on each node"
    )
    parser.add_argument(
        "--rdzv-endpoint", metavar="HOST:PORT", help="first node and a free port on it"
    )
    parser.add_argument(
        "--rdzv-id", default="alibi", metavar="NAME", help="name of the job, the same on all nodes"
    )
    parser.add_argument(
        "--max-restarts",
        type=int,
        default=3,
        metavar="N",
        help="number of restarts after a failure",
    )
    parser.add_argument("--dry-run", action="store_true", help="print the command and exit")
    parser.add_argument("recipe", metavar="RECIPE", help="e.g. wikitext-103/alibi-512")
    parser.add_argument("data", metavar="DATA", help="data-bin folder, or several joined by ':'")
    parser.add_argument("flags", nargs=argparse.REMAINDER, help="further flags of fairseq-train")


def run(args: argparse.Namespace) -> int:
    """Returns the training's exit code; 75 if it saved and stopped because of a signal."""
    from ..experiments.command import execute
    from ..experiments.run import ALIBI, has_reached
    from ..experiments.torchrun import launcher_flags, refuse_being_one_of_many, train_flags
    from ..paper.recipe import find_recipe

    refuse_being_one_of_many(os.environ, args.nnodes)
    recipe = find_recipe(args.recipe)
    where = machine(args)
    train = [args.data, *train_flags(recipe, where), *args.flags]
    python, *module = ALIBI
    command = [python, *launcher_flags(where, args.max_restarts), *module, "train", *train]
    if recipe.starts_from_another and flag_value(args.flags, "--finetune-from-model") is None:
        raise BadInput(
            f"{recipe.path} goes on with a trained model: name its checkpoint with "
            "--finetune-from-model behind the data folder."
        )
    save_dir = flag_value(args.flags, "--save-dir")
    if save_dir is None:
        raise BadInput("Name a folder for the checkpoints: --save-dir DIR behind the data folder.")
    check_data(args.data)
    check_flags(train)
    if args.dry_run:
        print(shlex.join(command))
        return 0
    updates = int(flag_value(args.flags, "--max-update") or recipe.updates)
    if has_reached(save_dir, updates):
        print(f"{save_dir} has reached {updates:,} updates; nothing to do.")
        return 0
    return execute(command)


def machine(args: argparse.Namespace):
    from ..experiments.torchrun import Machine

    processes = args.gpus if args.cpu is None else args.cpu
    if args.cpu is not None and args.gpus is not None:
        raise BadInput("Choose one of --gpus and --cpu.")
    if processes is None:
        import torch

        processes = torch.cuda.device_count() * args.nnodes
        if processes == 0:
            raise BadInput("There is no GPU here; use --cpu N for N processes on the CPU.")
    return Machine(processes, args.cpu is not None, args.nnodes, args.rdzv_endpoint, args.rdzv_id)


def flag_value(flags: list[str], name: str) -> str | None:
    """The value of the last ``--name VALUE`` or ``--name=VALUE``."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument(name, dest="value")
    return parser.parse_known_args(flags)[0].value


def check_flags(arguments: list[str]) -> None:
    """Parse the flags of ``fairseq-train`` before any process is started.

    Raises:
        BadInput: fairseq would refuse them.
    """
    from fairseq import options

    options.parse_args_and_arch(options.get_training_parser(), arguments)


def check_data(data: str) -> None:
    """Check before any process is started."""
    for folder in data.split(os.pathsep):
        if not (Path(folder) / "dict.txt").is_file():
            raise BadInput(
                f"There is no prepared data in {folder} (no dict.txt); see data-prep/README.md."
            )
