"""``fairseq-hydra-train`` whose paths are meant from where it was started.

Hydra changes to a folder of its own before fairseq reads its options, so that relative paths of
data, checkpoints and logs would lead elsewhere.
"""

from __future__ import annotations

import argparse
import os

import hydra
from fairseq.dataclass.initialize import hydra_init
from fairseq.utils import split_paths
from fairseq_cli.hydra_train import _hydra_main
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf, open_dict

from ..fairseq_fixes.invocation import FOLDER

#: Options of fairseq that hold a path.
PATHS = (
    "checkpoint.save_dir",
    "checkpoint.finetune_from_model",
    "common.tensorboard_logdir",
    "common.log_file",
    "common.quantization_config_path",
)


def with_user_dir(arguments: list[str]) -> list[str]:
    """The command line with this package as the plugin to load, unless it names one."""
    if any(argument.startswith("common.user_dir=") for argument in arguments):
        return arguments
    return [*arguments, f"common.user_dir={FOLDER}"]


def make_paths_absolute(cfg: DictConfig, start: str) -> None:
    """Resolve relative paths against the folder ``start``, in place."""
    with open_dict(cfg):
        for key in PATHS:
            path = OmegaConf.select(cfg, key)
            if path:
                OmegaConf.update(cfg, key, os.path.join(start, path))
        data = OmegaConf.select(cfg, "task.data")
        if data and "://" not in data:
            folders = [os.path.join(start, folder) for folder in split_paths(data)]
            cfg.task.data = os.pathsep.join(folders)
        # The default alone is looked for in the save folder.
        if cfg.checkpoint.restore_file != "checkpoint_last.pt":
            cfg.checkpoint.restore_file = os.path.join(start, cfg.checkpoint.restore_file)


# Hydra counts packages here. Version 1.0, which the fairseq of Python 3.10 needs, takes no other path.
@hydra.main(config_path="../../fairseq/config", config_name="config")
def _started(cfg: DictConfig) -> float:
    make_paths_absolute(cfg, HydraConfig.get().runtime.cwd)
    return _hydra_main(cfg)


def main() -> None:
    """Compose the configuration that the command line describes, then train."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--config-name", "-cn", default="config")
    # fairseq's defaults are merged into the file of this name and no other.
    hydra_init(parser.parse_known_args()[0].config_name)
    _started()
