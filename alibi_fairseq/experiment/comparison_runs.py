"""Runs of a comparison: the training of each model, and trials of its learning rate."""

from __future__ import annotations

import argparse
import glob
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ..files import sha256_if_present
from ..positions.plugin_sources import plugin_sha256
from ..positions.spec import distinct_labels
from ..reporting.rows import model_label
from ..results.data_folder import DataFolder
from ..results.data_hashes import data_sha256
from ..results.files import TRAINING_FILE
from .comparison_config import ComparisonConfig, ModelSpec
from .corpora import data_folder
from .evaluations import eval_steps_of
from .run import Run
from .tuning import TunedRun, Tuning
from .values import at_length

#: Longest warm-up of the learning rate, which otherwise takes a sixth of the updates.
MAX_WARMUP_UPDATES = 4000
#: Largest number of saves of a run, and the fewest updates between them.
MAX_SAVES = 20
MIN_UPDATES_BETWEEN_SAVES = 100
#: Largest share of a run's time that the validations before its saves may take.
VALIDATION_SHARE = 0.1


class ComparisonRun(NamedTuple):
    """Run of one model of a comparison.

    Attributes:
        spec: the model.
        run: its training and evaluations.
    """

    spec: ModelSpec
    run: TunedRun


def list_runs(
    comparison: ComparisonConfig, folder: Path, tuned: Path | None = None
) -> list[ComparisonRun]:
    """Return the runs of a comparison, the most important first.

    Args:
        folder: output folder of the comparison.
        tuned: folder of the tuning outcomes (default: ``folder``).
    """
    corpora = {corpus.name: corpus for corpus in comparison.corpora}
    runs = []
    for spec in comparison.model_specs():
        corpus = corpora[spec.corpus]
        data = data_folder(corpus, spec.train_length, folder)
        if len(comparison.lr) > 1:
            tuning = tuning_of(comparison, spec, data, folder, tuned or folder)
            run = build_run(comparison, spec, data, folder, tuning.lr)
            run = replace(run, trials=tuning.trials, tuning=tuning)
        else:
            run = build_run(comparison, spec, data, folder, comparison.lr[0])
        eval_steps = eval_steps_of(comparison, corpus, spec, run.folder)
        run = replace(run, eval_steps=tuple(eval_steps))
        runs.append(ComparisonRun(spec, run))
    return runs


def build_run(
    comparison: ComparisonConfig,
    spec: ModelSpec,
    data: Path,
    folder: Path,
    lr: float,
    suffix: str = "",
) -> TunedRun:
    """Return the run that trains one model, without trials and evaluations.

    Args:
        data: folder of the binary data.
        folder: output folder of the comparison.
        lr: peak learning rate.
        suffix: end of the run's name.
    """
    weight_flags = flags_for_weights(comparison, spec, lr)
    settings: dict = {
        "options": weight_flags,
        "train": sha256_if_present(data / "train.bin"),
        "dictionary": sha256_if_present(data / "dict.txt"),
    }
    plugin = plugin_sha256(spec.method.names)
    if plugin:
        settings["plugin"] = plugin
    name = f"{model_name(spec)}-seed{spec.seed}{suffix}"
    save_every = updates_between_saves(comparison.updates, comparison.tokens, data)
    flags = ["--tensorboard-logdir", str(folder / name / "tensorboard")]
    flags += ["--save-interval-updates", str(save_every), "--keep-interval-updates", "1"]
    flags += ["--no-epoch-checkpoints", "--log-format", "json", "--log-interval", "5"]
    if comparison.user_dir:
        flags += ["--user-dir", comparison.user_dir]
    flags += weight_flags  # the last one of a repeated option counts
    return TunedRun(
        name=name,
        folder=folder / name,
        data=str(data),
        flags=tuple(flags),
        settings=settings,
        updates=comparison.updates,
        tokens=comparison.tokens,
        methods=spec.method.names,
    )


def updates_between_saves(updates: int, tokens: int, data: Path) -> int:
    """Return the number of updates between two saves of a run.

    fairseq validates on the whole split before it saves. With a large split, a run therefore saves
    less often, and at least at its end and when it is stopped.

    Args:
        updates: updates of the run.
        tokens: tokens that the run trains on.
        data: folder of the binary data.
    """
    saves = MAX_SAVES
    manifest = DataFolder.open(data).manifest
    if manifest is not None and "valid" in manifest["splits"]:
        valid_tokens = manifest["splits"]["valid"]["tokens"]
        # A forward pass takes about a third of the time of an update.
        affordable = VALIDATION_SHARE * tokens / (valid_tokens / 3)
        saves = min(MAX_SAVES, max(1, int(affordable)))
    return max(MIN_UPDATES_BETWEEN_SAVES, updates // saves)


def flags_for_weights(comparison: ComparisonConfig, spec: ModelSpec, lr: float) -> list[str]:
    """Return the flags of ``fairseq-train`` that determine the weights, together with the data.

    Args:
        lr: peak learning rate.
    """
    flags = ["--task", "language_modeling"]
    if "transformer_xl" in spec.method.names:
        flags = ["--task", "segment_language_modeling", "--mem-len", str(spec.train_length)]
    flags += ["--arch", comparison.arch]
    flags += spec.method.flags
    flags += ["--tokens-per-sample", str(spec.train_length), "--sample-break-mode", "none"]
    flags += ["--max-tokens", str(comparison.tokens_per_batch)]
    if comparison.batches_per_update > 1:
        flags += ["--update-freq", str(comparison.batches_per_update)]
    flags += ["--required-batch-size-multiple", "1"]
    flags += ["--max-update", str(comparison.updates), "--seed", str(spec.seed)]
    flags += ["--optimizer", "adam", "--adam-betas", "(0.9, 0.98)", "--clip-norm", "1.0"]
    flags += ["--lr", str(lr)]
    if comparison.lr_schedule == "inverse_sqrt":
        flags += ["--lr-scheduler", "inverse_sqrt"]
    else:
        # fairseq's command line does not take --total-num-update from --max-update.
        flags += ["--lr-scheduler", "polynomial_decay"]
        flags += ["--total-num-update", str(comparison.updates)]
    warmup_updates = max(1, comparison.updates // 6)
    warmup_updates = min(warmup_updates, MAX_WARMUP_UPDATES)
    flags += ["--warmup-updates", str(warmup_updates)]
    flags += comparison.train_flags
    for flag in comparison.method_flags.get(spec.method, ()):
        flags.append(at_length(flag, spec.train_length))
    return flags


def model_name(spec: ModelSpec) -> str:
    """Return the part of a run's name that is the same for all seeds and learning rates.

    It contains the version of a plugin, so that an edited method is trained in another folder.
    """
    # fairseq splits paths at colons.
    method = spec.method.notation.replace("/", "-").replace(":", "-")
    name = f"{spec.corpus}/{method}-{spec.train_length}"
    plugin = plugin_sha256(spec.method.names)
    return f"{name}-{plugin[:8]}" if plugin else name


def edited_models(models: Iterable[ComparisonRun]) -> list[str]:
    """Return a sentence per model that is trained again because its plugin was edited.

    Args:
        models: runs of a comparison whose data is prepared.
    """
    repeated: dict[str, dict[str, None]] = defaultdict(dict)
    earlier: dict[str, set[str]] = defaultdict(set)
    for model in models:
        if model.run.is_complete:
            continue
        name = model_name(model.spec)
        for run in (*model.run.unfinished_trials, model.run):
            versions = _earlier_versions(run)
            if versions:
                repeated[name][run.name] = None
                earlier[name] |= versions
    sentences = []
    for name, runs in repeated.items():
        plural = "" if len(runs) == 1 else "s"
        sentences.append(
            f"{name}: the plugin was edited, so {len(runs)} run{plural} of an earlier version "
            f"({', '.join(sorted(earlier[name]))}) will be repeated."
        )
    return sentences


def _earlier_versions(run: Run) -> set[str]:
    """Return the first digits of the hashes of other plugin versions with the same training."""
    plugin = run.settings.get("plugin")
    if not plugin:
        return set()
    start, _, end = run.folder.name.partition(plugin[:8])
    versions = set()
    for folder in run.folder.parent.glob(f"{glob.escape(start)}????????{glob.escape(end)}"):
        version = folder.name[len(start) : len(start) + 8]
        if version != plugin[:8] and (folder / TRAINING_FILE).is_file():
            versions.add(version)
    return versions


def tuning_of(
    comparison: ComparisonConfig, spec: ModelSpec, data: Path, folder: Path, tuned: Path
) -> Tuning:
    """Return the tuning of a model's learning rate. Its trials use the first seed.

    Args:
        data: folder of the binary data.
        folder: output folder of the comparison.
        tuned: folder of the tuning outcomes.
    """
    labels = distinct_labels(comparison.methods)
    label = model_label(labels[spec.method], spec.train_length)
    if len(comparison.corpora) > 1:
        label += f" ({spec.corpus})"
    trial_updates = max(1, round(comparison.tune_share * comparison.updates))
    trial_config = replace(comparison, updates=trial_updates)
    trial_spec = spec._replace(seed=comparison.seeds[0])
    trials = {}
    for lr in comparison.lr:
        trial = build_run(trial_config, trial_spec, data, folder, lr, f"-lr{lr:g}")
        trials[lr] = replace(trial, may_diverge=True)
    outcome = tuned / f"{model_name(spec)}-tuning.json"
    return Tuning.choose(label, trials, outcome, _validation_sha256(data, trial.flags))


def _validation_sha256(data: Path, flags: Iterable[str]) -> str | None:
    """Return the hash of the splits that a training is validated on; None before they exist.

    Args:
        flags: flags of ``fairseq-train``, which can name the splits.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--valid-subset", default="valid")
    known, _ = parser.parse_known_args(list(flags))
    subsets = known.valid_subset.split(",")
    files = [data / f"{subset}.bin" for subset in subsets]
    if not all(file.is_file() for file in files):
        return None
    modified = tuple(file.stat().st_mtime_ns for file in files)
    return _cached_sha256(data, tuple(subsets), modified)


@cache
def _cached_sha256(data: Path, subsets: tuple[str, ...], modified: tuple[int, ...]) -> str | None:
    """Return the hash of splits that were last modified at some times."""
    return data_sha256(data, subsets)
