"""Commands of fairseq with this package as ``--user-dir``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Collection
from importlib import import_module
from typing import TYPE_CHECKING

from ..errors import FOLDER, PROGRAM, UserInputError
from .options import Parser, add_fields
from .plugin import import_plugin
from .training_options import OwnTrainingOptions

if TYPE_CHECKING:
    from omegaconf import DictConfig


def run(command: str, arguments: list[str]) -> int:
    """Run ``fairseq-COMMAND`` in this process with the given arguments; return the exit code.

    Importing fairseq registers our models (``registration.py``), and applies the workarounds and
    hooks in ``plugin/patches/``. fairseq takes one ``--user-dir``: this package, or a plugin, which
    imports it. ``train --recipe`` starts processes for a recipe instead.
    """
    names = [argument.partition("=")[0] for argument in arguments]
    if command == "train" and "--recipe" in names:
        from . import train_recipe

        return train_recipe.run(arguments)
    if command == "hydra-train":
        main = hydra_train
        if "common.user_dir" in names:
            # Hydra reads the options of its position methods.
            import_plugin(arguments[names.index("common.user_dir")].partition("=")[2])
        else:
            arguments = [*arguments, f"common.user_dir={FOLDER}"]
    else:
        if command == "train":
            arguments = take_kept_updates(arguments)
        main = import_module(f"fairseq_cli.{command.replace('-', '_')}").cli_main
        if "--user-dir" not in names:
            arguments = [*arguments, "--user-dir", str(FOLDER)]
    sys.argv = [f"{PROGRAM} {command}", *arguments]
    if command == "train" and {"-h", "--help"} & set(arguments):
        main = training_help
    main()
    return 0


def take_kept_updates(arguments: list[str]) -> list[str]:
    """Set the updates of ``--keep-at`` for all processes of the training; return the other options.

    Raises:
        UserInputError: they are not numbers of updates.
    """
    from ..plugin.kept_checkpoints import KEEP_AT  # imports fairseq

    given, others = own_training_options().parse_known_args(arguments)
    os.environ[KEEP_AT] = ",".join(map(str, given.keep_at))
    return others


def own_training_options() -> Parser:
    """Return the parser of the options that this package adds to all trainings."""
    parser = Parser(prog=f"{PROGRAM} train", add_help=False, allow_abbrev=False)
    add_fields(parser, OwnTrainingOptions)
    return parser


def training_help() -> None:
    """Print the options of this package's models, of ``fairseq-train``, and of the task.

    fairseq's own ``--help`` ends before it has read ``--arch`` and ``--task``.
    """
    from dataclasses import fields

    from fairseq import options
    from fairseq.models.transformer_lm import TransformerLanguageModelConfig

    from ..models.config import AlibiLanguageModelConfig

    parser = options.get_training_parser()
    parser.prog = f"{PROGRAM} train"
    chosen = ["data", "--arch", "alibi_lm", "--task", "language_modeling", *sys.argv[1:]]
    arguments = [argument for argument in chosen if argument not in ("-h", "--help")]
    options.parse_args_and_arch(parser, arguments, parse_known=True)
    parser.usage = "%(prog)s DATA --task language_modeling --arch NAME --save-dir FOLDER [options]"
    parser.description = (
        "To train a recipe of configs/: %(prog)s --recipe NAME DATA --save-dir FOLDER [options]. "
        "%(prog)s --recipe NAME --help lists its options."
    )
    names = {field.name for field in fields(AlibiLanguageModelConfig)}
    names -= {field.name for field in fields(TransformerLanguageModelConfig)}
    add_fields(parser, OwnTrainingOptions)
    _move_to_front(parser, {"keep_at"}, f"trainings of {PROGRAM}")
    _move_to_front(parser, names, f"models of {PROGRAM} (`{PROGRAM} models` lists their names)")
    parser.print_help()


def _move_to_front(parser: argparse.ArgumentParser, names: Collection[str], title: str) -> None:
    """Move the options with some names to a new group at the start of the help."""
    moved = []
    for group in parser._action_groups:
        remaining = []
        for action in group._group_actions:
            if action.dest in names:
                moved.append(action)
            else:
                remaining.append(action)
        group._group_actions = remaining
    new_group = parser.add_argument_group(title)
    new_group._group_actions += moved
    parser._action_groups.remove(new_group)
    parser._action_groups.insert(0, new_group)


def hydra_train() -> None:
    """Run ``fairseq-hydra-train`` with paths relative to the folder in which it was started.

    Hydra changes to a new folder for its log and a copy of the settings.
    """
    import hydra
    from fairseq.dataclass.initialize import hydra_init
    from fairseq_cli.hydra_train import _hydra_main
    from hydra.core.hydra_config import HydraConfig

    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--config-name", "-cn", default="config")
    # fairseq merges its defaults only into the file of this name.
    hydra_init(parser.parse_known_args()[0].config_name)

    # Hydra counts packages here. Version 1.0, which the fairseq of Python 3.10 needs, takes no
    # other path.
    @hydra.main(config_path="../../fairseq/config", config_name="config")
    def started(cfg) -> float:
        reject_missing_values(cfg)
        os.chdir(HydraConfig.get().runtime.cwd)
        return _hydra_main(cfg)

    started()


def reject_missing_values(cfg: DictConfig) -> None:
    """Reject a configuration with values ``???``, for which fairseq would take its defaults."""
    from omegaconf import DictConfig, OmegaConf

    missing = []
    for group, options in cfg.items():
        if isinstance(options, DictConfig):
            missing += [
                f"{group}.{name}" for name in options if OmegaConf.is_missing(options, name)
            ]
    if missing:
        overrides = " ".join(f"{name}=VALUE" for name in missing)
        raise UserInputError(f"The configuration is incomplete. Pass {overrides}.")
