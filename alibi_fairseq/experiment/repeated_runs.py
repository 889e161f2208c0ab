"""Runs that an edit of a plugin repeats, because its hash is part of what they ask for."""

from __future__ import annotations

import glob
from collections import defaultdict

from ..results.file_names import TRAINING_FILE
from .plan import Plan, model_name
from .run import Run


def describe_repeated_runs(plan: Plan) -> list[str]:
    """Return a sentence per model that is trained again because its plugin was edited.

    Args:
        plan: runs on prepared data.
    """
    repeated: dict[str, dict[str, None]] = defaultdict(dict)
    earlier: dict[str, set[str]] = defaultdict(set)
    for run in plan.unfinished:
        name = model_name(plan.models[run.name])
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
    plugin = run.plugin
    if not plugin:
        return set()
    start, _, end = run.folder.name.partition(plugin[:8])
    versions = set()
    for folder in run.folder.parent.glob(f"{glob.escape(start)}????????{glob.escape(end)}"):
        version = folder.name[len(start) : len(start) + 8]
        if version != plugin[:8] and (folder / TRAINING_FILE).is_file():
            versions.add(version)
    return versions
