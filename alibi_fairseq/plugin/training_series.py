"""Series of a training run: how its model is trained, from its start or since it was resumed."""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

from ..errors import UserInputError
from ..files import sha256_file
from ..models.description import describe_model
from ..results.data_hashes import DataHashes
from ..results.series import Series, read_series
from ..results.training_settings import collect_settings

#: Name of the checkpoint from which a training run resumes by default.
_LAST_CHECKPOINT = "checkpoint_last.pt"


def series_of_training(trainer, plugin: str | None, saved: dict | None) -> Series:
    """Return the series of a training run that starts or resumes.

    Args:
        trainer: fairseq's trainer, which has loaded its checkpoint, if there is one.
        plugin: hash of the plugin of the position method, or None.
        saved: series in the checkpoint of the training; None if it starts, or if the checkpoint is
            of an earlier release.
    """
    cfg = trainer.cfg
    settings = collect_settings(cfg, trainer.data_parallel_world_size, _data_hashes(cfg), plugin)
    facts = describe_model(cfg, trainer.model, len(trainer.task.source_dictionary))
    if saved is None:
        return Series(settings, start=_hash_start(cfg), facts=facts)
    before = read_series(saved, "the checkpoint")
    return replace(before.resumed(trainer.get_num_updates(), settings), facts=facts)


def planned_series(data: str, flags: Sequence[str], plugin: str | None = None) -> Series:
    """Return the series that a training run on one process will have, without its facts.

    Args:
        data: fairseq's data argument.
        flags: options of ``fairseq-train``.
        plugin: hash of the plugin of the position method, or None.
    """
    with _HYDRA:
        cfg = _parse_config(data, tuple(flags))
    return Series(collect_settings(cfg, 1, _data_hashes(cfg), plugin), start=_hash_start(cfg))


#: Held while hydra works, because it keeps its state in the process.
_HYDRA = threading.Lock()


@functools.cache
def _parse_config(data: str, flags: tuple[str, ...]) -> Any:
    """Return fairseq's configuration of a training run, for which hydra takes 0.3 seconds."""
    arguments = options.parse_args_and_arch(options.get_training_parser(), [data, *flags])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # hydra's advice to the authors of fairseq
        return convert_namespace_to_omegaconf(arguments)


def _data_hashes(cfg: Any) -> DataHashes | None:
    """Return the hashes of the data; None if it has another layout, so only its path is known."""
    try:
        return DataHashes.of(cfg.task.data, cfg.dataset.train_subset, cfg.dataset.valid_subset)
    except (OSError, UserInputError):
        return None


def _hash_start(cfg: Any) -> str | None:
    """Return the hash of the checkpoint whose weights a training run starts from, or None."""
    options = cfg.checkpoint
    paths = [options.finetune_from_model, options.get("continue_once")]
    if options.restore_file != _LAST_CHECKPOINT:
        paths.append(options.restore_file)
    for path in paths:
        if path and Path(path).is_file():
            return sha256_file(path)
    return None
