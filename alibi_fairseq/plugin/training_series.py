"""Series of a training run: how its model is trained, from its start or since it was resumed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import UserInputError
from ..files import sha256_file
from ..models.description import describe_model
from ..results.data_hashes import DataHashes
from ..results.file_names import LAST_CHECKPOINT
from ..results.series import Series, read_series
from ..results.training_settings import collect_settings


def series_of_training(trainer, plugin: str | None, saved: dict | None) -> Series:
    """Return the series of a training run that starts or resumes.

    Args:
        trainer: fairseq's trainer, which has loaded its checkpoint, if there is one.
        plugin: hash of the plugin of the position method, or None.
        saved: series in the checkpoint of the training; None if it starts, or if the checkpoint is
            of fairseq itself, or imported.
    """
    cfg = trainer.cfg
    series = series_from_start(cfg, trainer.data_parallel_world_size, plugin)
    if saved is not None:
        before = read_series(saved, "the checkpoint")
        series = before.resumed(trainer.get_num_updates(), series.settings)
    facts = describe_model(cfg, trainer.model, len(trainer.task.source_dictionary))
    return replace(series, facts=facts)


def series_from_start(cfg: Any, processes: int, plugin: str | None) -> Series:
    """Return the series of a training run that has never been resumed, without its facts.

    Args:
        cfg: fairseq's configuration of the training run.
        processes: number of processes.
        plugin: hash of the plugin of the position method, or None.
    """
    settings = collect_settings(cfg, processes, _data_hashes(cfg), plugin)
    return Series(settings, start=_hash_start(cfg))


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
    if options.restore_file != LAST_CHECKPOINT:
        paths.append(options.restore_file)
    elif options.reset_optimizer:  # a new training from the weights in its folder
        paths.insert(0, str(Path(options.save_dir) / LAST_CHECKPOINT))
    for path in paths:
        if path and Path(path).is_file():
            return sha256_file(path)
    return None
