"""The paper's Figure 1 next to the primary models of this project, in one style."""

from __future__ import annotations

import os
from pathlib import Path

from alibi_fairseq.paper import published
from alibi_fairseq.positions.display_names import method_name
from alibi_fairseq.reporting import plots
from alibi_fairseq.reporting.line_styles import method_style
from alibi_fairseq.reporting.plots import Panel, PlotLine
from studies.analysis.by_length import method_losses
from studies.analysis.study_results import StudyResults
from studies.sections.perplexity_by_length import model_line
from studies.sections.wording import full_name
from studies.small_models.models import CORPUS, MODELS

METHODS = ("alibi", "t5", "rotary", "sinusoidal")
#: Training length of the left half of the paper's Figure 1, whose numbers are in Table 2.
PAPER_LENGTH = 512
#: Ends of the perplexity axis, at which the paper's Figure 1 also cuts the methods that fail.
PAPER_LIMITS = (15, 55)
OUR_LIMITS = (40, 100)


def draw_paper_and_ours(results: Path, *paths: str | os.PathLike) -> None:
    """Draw two panels of perplexity by evaluation length.

    Args:
        results: results of the primary models.
        paths: files to write.
    """
    plots.draw("", [_paper_panel(), _our_panel(results)], *paths)


def _paper_panel() -> Panel:
    lines = []
    for method in METHODS:
        x = []
        y = []
        for row in published.rows("table02"):
            if row["position_method"] != method or row["perplexity"] == published.OUT_OF_MEMORY:
                continue
            x.append(row["length"])
            y.append(row["perplexity"])
        lines.append(PlotLine(full_name(method), x, y, method_style(method_name(method))))
    return Panel(
        f"The paper (247M parameters), trained at L = {PAPER_LENGTH}",
        lines,
        trained_at=PAPER_LENGTH,
        y_limits=PAPER_LIMITS,
    )


def _our_panel(results: Path) -> Panel:
    length = MODELS.train_length
    study = StudyResults.load(results)
    parameters = study.alibi_model(MODELS).last_validation.series.facts.parameters
    assert parameters is not None, "a training records the number of parameters"
    by_method = method_losses(study.losses, CORPUS, length)
    lines = []
    for method in METHODS:
        style = method_style(method_name(method))
        lines.append(model_line(full_name(method), by_method[method], style))
    return Panel(
        f"Ours ({parameters / 1e6:.1f}M parameters), trained at L = {length}",
        lines,
        trained_at=length,
        y_limits=OUR_LIMITS,
    )
