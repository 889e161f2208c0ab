"""Runs that are repeated because their plugin was edited."""

from __future__ import annotations

import glob
from collections import defaultdict

from ..results.files import TRAINING_FILE
from .plan import Plan, model_name
from .run import Run
from .schema import ExperimentConfig


def describe_repeated_runs(config: ExperimentConfig, plan: Plan) -> list[str]:
    """Return a sentence per model that is trained again because its plugin was edited.

    Args:
        plan: runs on prepared data.
    """
    repeated: dict[str, dict[str, None]] = defaultdict(dict)
    earlier: dict[str, set[str]] = defaultdict(set)
    for model, run in zip(config.all_models(), plan.runs, strict=True):
        if run.is_complete:
            continue
        name = model_name(model)
        for unfinished in (*map(plan.find, run.after), run):
            versions = _earlier_versions(unfinished)
            if versions:
                repeated[name][unfinished.name] = None
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
