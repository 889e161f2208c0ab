"""Completion marker of a comparison's report.

A report whose inputs are unchanged is not written again, which would import PyTorch, fairseq, and
matplotlib.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ..completion_marker import CompletionMarker
from ..files import sha256_files
from ..results.files import TRAINING_FILE, read_report_files
from ..results.provenance import version_of
from .comparison_config import ComparisonConfig
from .comparison_runs import ComparisonRun
from .config_files import as_mapping

#: Packages whose code determines a report.
CODE = ("compare", "positions", "reporting", "results", "runs")


def report_marker(
    comparison: ComparisonConfig, folder: Path, models: Iterable[ComparisonRun]
) -> CompletionMarker:
    """Return the marker of a report, whose result is the names of its files.

    Args:
        comparison: configuration.
        folder: output folder.
        models: runs of the comparison, which must be complete.
    """
    sources: dict[Path, None] = {}
    data = []
    for model in models:
        run = model.run
        data.append(run.data)
        sources[run.folder / TRAINING_FILE] = None
        for step in run.eval_steps:
            sources[step.results_path] = None
        if run.tuning:
            sources[run.tuning.marker.path] = None
    settings = {
        "comparison": as_mapping(comparison),
        "data": data,
        "code": code_sha256(),
        "matplotlib": version_of("matplotlib"),
    }
    outputs = [folder / name for name in read_report_files(folder)]
    return CompletionMarker(folder / "report.json", settings, sources, outputs)


def code_sha256() -> str:
    """Return the hash of the code that determines a report."""
    package = Path(__file__).resolve().parent.parent
    files: list[Path] = []
    for name in CODE:
        files += sorted((package / name).glob("*.py"))
    return sha256_files(files)
