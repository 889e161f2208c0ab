"""Names of the files of runs and comparisons, and the results files of a folder."""

from __future__ import annotations

import os
from pathlib import Path

from ..files import read_json

#: Results file of a run, a comparison, and an entry of a record.
RESULTS_FILE = "results.json"
#: Results file that a training writes into its save folder.
TRAINING_FILE = "training.json"
#: Checkpoint with the lowest validation loss of a run.
BEST_CHECKPOINT = "checkpoint_best.pt"
#: Newest checkpoint of a run, from which it resumes by default.
LAST_CHECKPOINT = "checkpoint_last.pt"
#: Folder in that of a run, and of an entry of a record, with the plugin of its method.
PLUGIN_FOLDER = "plugin"
#: File in a run's folder of its plugin that marks it as a copy made by a training.
COPIED_PLUGIN = ".copied-by-training"
#: End of the names of files with the outcome of learning-rate trials.
TRIALS_ENDING = "-tuning.json"
#: Configuration that ``compare`` writes into its output folder.
COMPARISON_FILE = "comparison.yaml"
#: Configuration in the same folder that SLURM jobs read, whatever the user edits meanwhile.
EXPERIMENT_FILE = "experiment.yaml"
#: File in the same folder that lists the files of the comparison's report.
REPORT_FILES = "report-files.json"


def kept_checkpoint(updates: int) -> str:
    """Return the name of a checkpoint that a run keeps after a number of updates."""
    return f"checkpoint_{updates}.pt"


def lock_path(path: Path) -> Path:
    """Return the path of the lock that an evaluation holds while it writes a results file."""
    return path.with_name(f".{path.name}.lock")


def read_report_files(folder: Path) -> list[str]:
    """Return the names of the files of a comparison's report; empty if none was written."""
    path = folder / REPORT_FILES
    if not path.is_file():
        return []
    return [Path(name).name for name in read_json(path)]


def find_results_files(folder: Path) -> list[Path]:
    """Return the results files of a folder.

    In the output folder of a comparison, these are ``results.json`` or, with several corpora,
    ``CORPUS-results.json``, as listed in ``report-files.json``. Its other JSON files are settings,
    completion markers, and the results of each run. In any other folder, such as the results of a
    study, all other JSON files than the outcomes of trials must be results files, including those
    in linked subfolders.
    """
    if (folder / REPORT_FILES).is_file():
        names = read_report_files(folder)
        return sorted(folder / name for name in names if name.endswith(RESULTS_FILE))
    if (folder / COMPARISON_FILE).is_file():  # copied without that file
        return sorted(folder.glob(f"*{RESULTS_FILE}"))
    files = []
    visited = set()
    for parent, subfolders, names in os.walk(folder, followlinks=True):
        real_path = os.path.realpath(parent)
        if real_path in visited:  # a link to a folder above it, or a second link
            subfolders.clear()
            continue
        visited.add(real_path)
        for name in names:
            if name.endswith(".json") and not name.endswith(TRIALS_ENDING):
                files.append(Path(parent, name))
    return sorted(files)
