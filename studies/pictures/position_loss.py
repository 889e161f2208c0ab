"""Loss by position of the primary models, in windows far longer than those of training."""

from __future__ import annotations

import os
from pathlib import Path

from alibi_fairseq.positions.spec import method_name
from alibi_fairseq.reporting import plots
from alibi_fairseq.reporting.figures_by_position import position_line
from alibi_fairseq.reporting.loss_by_position import longest_windows
from alibi_fairseq.reporting.plots import Panel
from alibi_fairseq.results.files import load_results_file
from alibi_fairseq.results.groups import MeanMeasurement, ModelMeasurements
from alibi_fairseq.results.record import Measurement
from alibi_fairseq.results.results_file import EvaluationFile

from ..experiment import EVALUATION_FILE
from ..losses import FinishedModel, finished_models
from ..small_models.groups import CORPUS, MODELS
from ..tables import known_name

LENGTH = MODELS.train_length
METHODS = ("alibi", "t5", "rotary", "sinusoidal")


def draw_position_loss(results: Path, *paths: str | os.PathLike) -> None:
    """Draw a line per method.

    Args:
        results: results of the primary models.
        paths: files to write.
    """
    lines = []
    windows = 0
    for method in METHODS:
        seeds = []
        for seed in finished_models(results):
            if (seed.corpus, seed.method, seed.train_length) == (CORPUS, method, LENGTH):
                seeds.append(_longest_windows(seed))
        mean = MeanMeasurement.of(seeds)
        windows = mean.length
        model = ModelMeasurements(method_name(method), LENGTH, [mean], name=known_name(method))
        lines.append(position_line(model))
    panel = Panel(
        f"Trained at L = {LENGTH}, evaluated at {windows:,}",
        lines,
        x="Position in the window (tokens)",
        y="Loss (bits per token)",
        trained_at=LENGTH,
        end_labels=True,
    )
    plots.draw("", [panel], *paths)


def _longest_windows(model: FinishedModel) -> Measurement:
    """Return the evaluation of a model, as trained, in the longest windows without overlap."""
    results = load_results_file(model.folder / EVALUATION_FILE)
    assert isinstance(results, EvaluationFile), "a study evaluates its models on text"
    as_trained = [record for record in results.records if record.model.label is None]
    (measurement,) = longest_windows(as_trained)
    return measurement
