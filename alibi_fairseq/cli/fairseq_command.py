"""fairseq's own commands with this package as ``--user-dir``."""

from __future__ import annotations

import argparse
import os
import sys
from importlib import import_module
from pathlib import Path

from ..errors import PROGRAM, BadInput
from ..fairseq_fixes.invocation import FOLDER, is_this_package


def run(verb: str, arguments: list[str]) -> int:
    """Run ``fairseq-<verb>`` in this process with a command line that is passed on unchanged."""
    try:
        import fairseq_cli  # noqa: F401
    except ModuleNotFoundError as error:
        raise BadInput(
            f"fairseq is not installed; `{PROGRAM} check-env` says how to install it."
        ) from error

    if verb == "train" and {"-h", "--help"} & set(arguments):
        return training_help(arguments)
    if verb == "hydra-train":
        main = hydra_train
        named = any(argument.startswith("common.user_dir=") for argument in arguments)
        command = [*arguments, *([] if named else [f"common.user_dir={FOLDER}"])]
    else:
        main = import_module(f"fairseq_cli.{verb.replace('-', '_')}").cli_main
        command = [*arguments, *_our_user_dir(arguments)]
    sys.argv = [f"{PROGRAM} {verb}", *command]
    main()
    return 0


def training_help(arguments: list[str]) -> int:
    """Print the options of ``fairseq-train`` with those of the model and the task.

    fairseq's own ``--help`` ends before it has read ``--arch`` and ``--task``.
    """
    from fairseq import models, options, tasks

    chosen = argparse.ArgumentParser(add_help=False)
    chosen.add_argument("--arch", choices=models.ARCH_MODEL_REGISTRY, default="alibi_lm")
    chosen.add_argument("--task", choices=tasks.TASK_REGISTRY, default="language_modeling")
    chosen.add_argument("--user-dir")
    args, _ = chosen.parse_known_args(arguments)
    if args.user_dir:
        import_plugin(args.user_dir)
    parser = options.get_training_parser(default_task=args.task)
    parser.prog = f"{PROGRAM} train"
    for kind, registry in (
        ("task", tasks.TASK_REGISTRY[args.task]),
        ("arch", models.ARCH_MODEL_REGISTRY[args.arch]),
    ):
        title = f"Options of --{kind} {getattr(args, kind)}"
        registry.add_args(parser.add_argument_group(title, argument_default=argparse.SUPPRESS))
    parser.print_help()
    return 0


def _our_user_dir(arguments: list[str]) -> list[str]:
    """``--user-dir`` with this package, unless a plugin is given.

    fairseq takes one ``--user-dir``. A plugin that builds on this package imports it, and that
    registers our models.
    """
    for flag, following in zip(arguments, [*arguments[1:], ""]):
        name, _, value = flag.partition("=")
        if name == "--user-dir" and not is_this_package(value or following):
            check_plugin(value or following)
            return []
    return ["--user-dir", str(FOLDER)]


def import_plugin(folder: str) -> None:
    """Import a plugin as fairseq's commands do."""
    from fairseq.utils import import_user_module

    check_plugin(folder)
    import_user_module(argparse.Namespace(user_dir=folder))


def check_plugin(folder: str) -> None:
    """Raises BadInput if there is no Python package in a folder."""
    if not (Path(folder) / "__init__.py").is_file():
        raise BadInput(f"--user-dir: {folder} is not a folder with an __init__.py.")


#: Options of fairseq that hold a path.
PATHS = (
    *("checkpoint.save_dir", "checkpoint.finetune_from_model", "common.tensorboard_logdir"),
    *("common.log_file", "common.quantization_config_path"),
)


def hydra_train() -> None:
    """``fairseq-hydra-train`` whose paths are meant from where it was started.

    Hydra changes to a folder of its own before fairseq reads its options, so that relative paths of
    data, checkpoints and logs would lead elsewhere.
    """
    import hydra
    from fairseq.dataclass.initialize import hydra_init
    from fairseq_cli.hydra_train import _hydra_main
    from hydra.core.hydra_config import HydraConfig

    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--config-name", "-cn", default="config")
    # fairseq's defaults are merged into the file of this name and no other.
    hydra_init(parser.parse_known_args()[0].config_name)

    # Hydra counts packages here. Version 1.0, which the fairseq of Python 3.10 needs, takes no other path.
    @hydra.main(config_path="../../fairseq/config", config_name="config")
    def started(cfg) -> float:
        make_paths_absolute(cfg, HydraConfig.get().runtime.cwd)
        return _hydra_main(cfg)

    started()


def make_paths_absolute(cfg, start: str) -> None:
    """Resolve relative paths of fairseq's configuration against the folder ``start``, in place."""
    from fairseq.utils import split_paths
    from omegaconf import OmegaConf, open_dict

    with open_dict(cfg):
        for key in PATHS:
            if path := OmegaConf.select(cfg, key):
                OmegaConf.update(cfg, key, os.path.join(start, path))
        data = OmegaConf.select(cfg, "task.data")
        if data and "://" not in data:
            folders = [os.path.join(start, folder) for folder in split_paths(data)]
            cfg.task.data = os.pathsep.join(folders)
        # The default alone is looked for in the save folder.
        if cfg.checkpoint.restore_file != "checkpoint_last.pt":
            cfg.checkpoint.restore_file = os.path.join(start, cfg.checkpoint.restore_file)
