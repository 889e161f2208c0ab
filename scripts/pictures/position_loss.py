"""Loss by position of the primary models, in windows far longer than those of training."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from alibi_fairseq.reporting import plots
from alibi_fairseq.reporting.figures_by_position import position_line
from alibi_fairseq.reporting.loss_by_position import longest_windows
from alibi_fairseq.reporting.plots import Panel
from alibi_fairseq.reporting.rows import build_rows
from alibi_fairseq.results.result import Result
from studies.analysis.study_results import FinishedModel, StudyResults
from studies.sections.wording import full_name
from studies.small_models.models import CORPUS, MODELS

LENGTH = MODELS.train_length
METHODS = ("alibi", "t5", "rotary", "sinusoidal")


def draw_position_loss(results: Path, *paths: str | os.PathLike) -> None:
    """Draw a line per method.

    Args:
        results: results of the primary models.
        paths: files to write.
    """
    study = StudyResults.load(results)
    lines = []
    windows = 0
    for method in METHODS:
        seeds = []
        for seed in study.models:
            if seed.model == (CORPUS, method, LENGTH):
                seeds.append(_longest_windows(seed))
        (row,) = build_rows(seeds)
        windows = row.points[-1].case.length
        lines.append(position_line(replace(row, name=full_name(method))))
    panel = Panel(
        f"Trained at L = {LENGTH}, tested in windows of {windows:,} tokens",
        lines,
        x="Position in the window (tokens)",
        y="Loss (bits per token)",
        trained_at=LENGTH,
    )
    plots.draw("", [panel], *paths)


def _longest_windows(model: FinishedModel) -> Result:
    """Return the evaluation of a model, as trained, in the longest windows without overlap."""
    as_trained = [result for result in model.own_results if not result.reading.overrides]
    (longest,) = longest_windows(as_trained)
    return longest
