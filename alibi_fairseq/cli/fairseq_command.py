"""fairseq's own commands with this package as ``--user-dir``."""

from __future__ import annotations

import argparse
import os
import sys
from importlib import import_module

from ..errors import FOLDER, PROGRAM


def run(verb: str, arguments: list[str]) -> int:
    """Run ``fairseq-<verb>`` in this process with a command line that is passed on unchanged.

    fairseq takes one ``--user-dir``. A plugin that is given there and builds on this package imports it,
    and that registers our models.
    """
    hydra = verb == "hydra-train"
    flag = "common.user_dir" if hydra else "--user-dir"
    main = hydra_train if hydra else import_module(f"fairseq_cli.{verb.replace('-', '_')}").cli_main
    if flag not in [argument.partition("=")[0] for argument in arguments]:
        ours = [f"{flag}={FOLDER}"] if hydra else [flag, str(FOLDER)]
        arguments = [*arguments, *ours]
    sys.argv = [f"{PROGRAM} {verb}", *arguments]
    if verb == "train" and {"-h", "--help"} & set(arguments):
        main = training_help
    main()
    return 0


def training_help() -> None:
    """Print the options of ``fairseq-train`` with those of the model and the task.

    fairseq's own ``--help`` ends before it has read ``--arch`` and ``--task``.
    """
    from fairseq import options

    parser = options.get_training_parser()
    parser.prog = f"{PROGRAM} train"
    chosen = ["data", "--arch", "alibi_lm", "--task", "language_modeling", *sys.argv[1:]]
    arguments = [each for each in chosen if each not in ("-h", "--help")]
    options.parse_args_and_arch(parser, arguments, parse_known=True)
    parser.print_help()


def hydra_train() -> None:
    """``fairseq-hydra-train`` whose relative paths are meant from where it was started.

    Hydra changes to a folder of its own for its log and a copy of the settings.
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
        os.chdir(HydraConfig.get().runtime.cwd)
        return _hydra_main(cfg)

    started()
